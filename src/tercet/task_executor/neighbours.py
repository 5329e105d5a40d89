"""The other executors as one executor knows them: members, connections, arenas that it can read."""

from dataclasses import dataclass

from tercet.base.ids import Address, BlockId, Epoch
from tercet.messages.effects import Effect, Unmap
from tercet.messages.events import ArenaLent, ArenaWithdrawn
from tercet.messages.kv import Reach
from tercet.messages.wire import Members


@dataclass(slots=True)
class _Lent:
    first_block: int
    num_blocks: int
    num_readers: int = 0
    withdrawn: bool = False


class Neighbours:
    """What is known of peers; bounded by the members' list and the arenas of one host."""

    def __init__(self) -> None:
        self._reaches: dict[Address, Reach] = {}
        self._connected: dict[Address, Epoch] = {}
        self._lent: dict[str, _Lent] = {}

    # members and connections

    def members(self, message: Members) -> None:
        """Take the newest list; who is absent from a settled one is no member any more."""
        reaches = {Address(f"executor/{r.executor}"): r.reach for r in message.executors}
        if message.settled:
            self._reaches = reaches
        else:
            self._reaches.update(reaches)

    def reach(self, peer: Address) -> Reach | None:
        return self._reaches.get(peer)

    def joined(self, peer: Address, epoch: Epoch) -> bool:
        """Note a connection; true if another self of the peer was connected until now."""
        renewed = self._connected.get(peer, epoch) != epoch
        self._connected[peer] = epoch
        return renewed

    def gone(self, peer: Address, epoch: Epoch) -> bool:
        """Note the end of a connection; true if it was the present one."""
        if self._connected.get(peer) != epoch:
            return False
        del self._connected[peer]
        return True

    @property
    def num_connected(self) -> int:
        """Executors that a connection stands with."""
        return sum(peer.startswith("executor/") for peer in self._connected)

    def connected(self, peer: Address) -> bool:
        return peer in self._connected

    # arenas of this host that can be read in place

    def lent(self, event: ArenaLent) -> None:
        known = self._lent.get(event.memory)
        if known is None or known.first_block != event.first_block:
            self._lent[event.memory] = _Lent(event.first_block, event.num_blocks)

    def withdrawn(self, event: ArenaWithdrawn, out: list[Effect]) -> None:
        """No new reader; the place is given back once nobody reads it."""
        arena = self._lent.get(event.memory)
        if arena is not None:
            arena.withdrawn = True
            self._let_go(event.memory, out)

    def readable(self, memory: str) -> bool:
        """Whether a new task may read this memory in place."""
        arena = self._lent.get(memory)
        return arena is not None and not arena.withdrawn

    def read(self, memory: str, indices: "list[int]") -> tuple[BlockId, ...] | None:
        """Count a reader of these blocks and give their ids here; None if they cannot be read."""
        arena = self._lent.get(memory)
        if arena is None or arena.withdrawn:
            return None
        if any(not 0 <= index < arena.num_blocks for index in indices):
            return None
        arena.num_readers += 1
        return tuple(BlockId(arena.first_block + index) for index in indices)

    def done(self, memory: str, out: list[Effect]) -> None:
        """A reader that was counted reads no more."""
        arena = self._lent.get(memory)
        if arena is not None:
            arena.num_readers -= 1
            self._let_go(memory, out)

    def _let_go(self, memory: str, out: list[Effect]) -> None:
        arena = self._lent[memory]
        if arena.withdrawn and not arena.num_readers:
            del self._lent[memory]
            out.append(Unmap(memory=memory, cause=memory))
