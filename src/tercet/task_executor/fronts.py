"""The reply addresses of tasks: which self of a front they belong to, and whether it is there.

unknown --submit--> here --PeerGone--> away --grace passed--> unknown, its tasks end
                     ^  ^               |
                     |  +--PeerJoined---+   the same epoch: it goes on
                     +---- a higher epoch, from any state: tasks of the former self end
"""

from tercet.base.ids import Address, Epoch


class Front:
    """One reply address with tasks here."""

    __slots__ = ("address", "away_since", "epoch", "joins")

    def __init__(self, address: Address, epoch: Epoch) -> None:
        self.address = address
        self.epoch = epoch
        self.joins = 0
        """Connections after the first: what was sent before the last one may be lost."""
        self.away_since: int | None = None


class Fronts:
    """All reply addresses with tasks; as many as there are fronts."""

    def __init__(self) -> None:
        self._fronts: dict[Address, Front] = {}

    def __len__(self) -> int:
        return len(self._fronts)

    def get(self, address: Address) -> Front | None:
        return self._fronts.get(address)

    def submitted(self, address: Address, epoch: Epoch) -> Front | None:
        """Give the front a task came from; None if a newer self of it is known."""
        front = self._fronts.get(address)
        if front is None:
            front = self._fronts[address] = Front(address, epoch)
        elif epoch < front.epoch:
            return None
        return front

    def joined(self, address: Address, epoch: Epoch) -> bool:
        """Note a connection; true if it is a new self, so that the former's tasks must end."""
        front = self._fronts.get(address)
        if front is None or epoch < front.epoch:
            return False
        renewed = epoch > front.epoch
        front.epoch = epoch
        front.joins += 1
        front.away_since = None
        return renewed

    def gone(self, address: Address, epoch: Epoch, *, now: int) -> bool:
        """Note the end of a connection; true if it was the present self's."""
        front = self._fronts.get(address)
        if front is None or epoch != front.epoch:
            return False
        front.away_since = now
        return True

    def forget(self, address: Address) -> None:
        """Drop what is known of an address that has no tasks any more."""
        del self._fronts[address]
