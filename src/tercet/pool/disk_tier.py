"""The tier on disk: places like those in memory, and a label for each value that lies there."""

from array import array
from collections.abc import Callable

from tercet.pool import labels
from tercet.pool.config import PoolConfig
from tercet.pool.disk import DiskLayout
from tercet.pool.index import NONE, Index
from tercet.pool.labels import Label
from tercet.pool.namespaces import Namespaces
from tercet.pool.tiers import Tier

ORDER_MASK = 0xFFFFFFFF


class DiskTier:
    """Copies on disk of values that the index knows."""

    def __init__(
        self, config: PoolConfig, index: Index, spaces: Namespaces, left: Callable[[int], None]
    ) -> None:
        """`left` is told of every entry that this tier gave up by itself."""
        self.layout = DiskLayout.of(config.disk_bytes)
        self.tier = Tier(
            index,
            (self.layout.data_bytes,),
            policy=config.policy,
            watermark=config.watermark,
            left=self._left,
        )
        quotas = spaces.quotas
        self.tier.set_quotas({number: quota.disk_bytes for number, quota in quotas.items()})
        self._index = index
        self._spaces = spaces
        self._tell_left = left
        self._record = index.column("I", NONE)
        self._order_of = index.column("I", 0)
        self._records = _Records(self.layout.num_records)
        self._order = 0

    def reserve(self, entry: int, key: bytes) -> tuple[int, bytes] | None:
        """Give (place, label) for a copy of a value in memory; None: no room."""
        tier, index = self.tier, self._index
        if tier.keeps(entry):
            return None
        record = self._records.take()
        if record is None and tier.evict_oldest():
            record = self._records.take()
        if record is None:
            return None
        space = index.space[entry]
        place = tier.reserve(index.size[entry], self._spaces.part(space), index.word_b[entry])
        if place is None:
            self._records.give(record)
            return None
        self._order += 1
        self._record[entry] = record
        self._order_of[entry] = self._order & ORDER_MASK
        start, slots, units = tier.segments.span_of(place)
        label = Label(
            record=record,
            order=self._order,
            key=key,
            namespace=self._spaces.digest(space),
            unit=place,
            size=index.size[entry],
            part_bytes=index.part[entry],
            span_start=start,
            span_slots=slots,
            slot_units=units,
            check=index.check_of[entry],
        )
        return place, labels.pack(label)

    def commit(self, entry: int, place: int) -> None:
        """The copy is there."""
        self.tier.commit(entry, place, self._part(entry))

    def cancel(self, entry: int, place: int) -> None:
        """It is not."""
        self.tier.cancel(place, self._index.size[entry], self._part(entry))
        self._give_record(entry)

    def hold(self, entry: int) -> None:
        """Keep it where it is."""
        self.tier.hold(entry, self._part(entry))

    def release(self, entry: int) -> bool:
        """True if it was doomed and has gone now."""
        gone = self.tier.release(entry, self._part(entry))
        if gone:
            self._give_record(entry)
        return gone

    def drop(self, entry: int) -> None:
        """Find it here no more."""
        if self.tier.has(entry) and self.tier.drop(entry, self._part(entry)):
            self._give_record(entry)

    # what a former self left

    def is_sound(self, label: Label) -> bool:
        """Say whether a label can be one of this disk."""
        layout = self.layout
        span_units = label.span_slots * label.slot_units
        return (
            label.record < layout.num_records
            and 0 < label.part_bytes <= label.size <= label.slot_units * layout.unit_bytes
            and label.span_slots > 0
            and (label.span_start + span_units) * layout.unit_bytes <= layout.data_bytes
        )

    def older_at(self, label: Label) -> int:
        """Give the entry of an older label at the same place, or NONE."""
        self._order = max(self._order, label.order)
        owner = self.tier.segments.owner_at(label.unit)
        if owner is None or not self._index.is_used(owner):
            return NONE
        return owner if self._order_of[owner] < label.order & ORDER_MASK else NONE

    def adopt(self, entry: int, label: Label) -> bool:
        """Take it up; False if its place is another's, or the quota is full."""
        part = self._part(entry)
        self.tier.segments.adopt(label.span_start, label.span_slots, label.slot_units)
        if not self.tier.fits(part, label.size) or not self.tier.adopt(entry, label.unit, part):
            return False
        self._records.adopt(label.record)
        self._record[entry] = label.record
        self._order_of[entry] = label.order & ORDER_MASK
        return True

    def _part(self, entry: int) -> int:
        return self._spaces.part(self._index.space[entry])

    def _left(self, entry: int) -> None:
        self._give_record(entry)
        self._tell_left(entry)

    def _give_record(self, entry: int) -> None:
        self._records.give(self._record[entry])
        self._record[entry] = NONE


class _Records:
    """Which records of the disk's list of labels are in use; adopted ones are stepped over when
    their turn comes.
    """

    def __init__(self, total: int) -> None:
        self._next = 0
        """All before it are in use, or in the list of free ones."""
        self._free = array("I")
        self._adopted = bytearray(total)

    def take(self) -> int | None:
        if self._free:
            return self._free.pop()
        record = self._adopted.find(0, self._next)
        self._next = len(self._adopted) if record < 0 else record + 1
        return None if record < 0 else record

    def give(self, record: int) -> None:
        if record < self._next:
            self._free.append(record)
        else:
            self._adopted[record] = 0

    def adopt(self, record: int) -> None:
        self._adopted[record] = 1
