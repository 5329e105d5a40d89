"""One host's share of the pool: which values it has, in memory, on disk, or in both.

    absent ──commit──▶ memory ──commit_disk──▶ memory and disk ──evicted──▶ disk
       ▲                  │ evicted                   ▲                      │
       └──────────────────┘                           └───────install────────┘

A value's entry lives as long as one of the tiers keeps its bytes. Every change of place has two
ends, `reserve*` and `commit*` or `cancel*`; between them somebody else copies bytes.
"""

from array import array

from msgspec import Struct

from tercet.base.errors import must
from tercet.pool import labels
from tercet.pool.config import PoolConfig
from tercet.pool.disk import DiskLayout
from tercet.pool.index import NONE, Index
from tercet.pool.labels import Label
from tercet.pool.namespaces import Namespaces, digest_of
from tercet.pool.tiers import Tier, TierStats

ORDER_MASK = 0xFFFFFFFF


class Value(Struct, frozen=True, kw_only=True):
    """What is to be stored: everything but its bytes."""

    key: bytes
    size: int
    part_bytes: int
    check: int


class StoreStats(Struct, frozen=True, kw_only=True):
    """What a share holds."""

    values: int
    index_bytes: int
    dram: TierStats
    disk: TierStats | None


class Store:
    """The index and both tiers; O(1) a call and no I/O."""

    def __init__(self, config: PoolConfig, *, segments: tuple[int, ...]) -> None:
        """`segments`: sizes of the memory segments that there are."""
        self.index = Index()
        self.spaces = Namespaces(config.quotas)
        quotas = self.spaces.quotas
        self.dram = Tier(
            self.index,
            segments,
            policy=config.policy,
            watermark=config.watermark,
            left=self._left_dram,
        )
        self.dram.set_quotas({number: quota.dram_bytes for number, quota in quotas.items()})
        self.disk: Tier | None = None
        self.layout: DiskLayout | None = None
        self._record = array("I")
        self._records = _Records(0)
        if config.disk_bytes:
            self.layout = layout = DiskLayout.of(config.disk_bytes)
            self.disk = Tier(
                self.index,
                (layout.data_bytes,),
                policy=config.policy,
                watermark=config.watermark,
                left=self._left_disk,
            )
            self.disk.set_quotas({number: quota.disk_bytes for number, quota in quotas.items()})
            self._record = self.index.column("I", NONE)
            self._order_of = self.index.column("I", 0)
            self._records = _Records(layout.num_records)
        self._order = 0

    # finding

    def find(self, namespace: str, key: bytes) -> int:
        """Give the entry of a value that can be had, or NONE."""
        entry = self.known(namespace, key)
        return entry if entry == NONE or self.tier_of(entry) else NONE

    def known(self, namespace: str, key: bytes) -> int:
        """Give the entry of a key even if its value is doomed, or NONE."""
        space = self.spaces.known(digest_of(namespace))
        if space is None:
            return NONE
        return self.index.find(*self.spaces.words(space, key))

    def tier_of(self, entry: int) -> str:
        """Give where a value can be read: `d` memory, `s` disk, or nothing."""
        if self.dram.has(entry):
            return "d"
        return "s" if self.disk is not None and self.disk.has(entry) else ""

    def key_of(self, entry: int) -> bytes:
        index = self.index
        return self.spaces.key(index.space[entry], index.word_a[entry], index.word_b[entry])

    def use(self, entry: int) -> None:
        """Note that a value was asked for, wherever it lies."""
        part = self.part_of(entry)
        self.dram.use(entry, part)
        if self.disk is not None:
            self.disk.use(entry, part)

    def part_of(self, entry: int) -> int:
        return self.spaces.part(self.index.space[entry])

    # a new value

    def reserve(self, namespace: str, size: int) -> tuple[int, int] | None:
        """Give (place, number of the namespace) for a value that is coming; None: no room."""
        space = self.spaces.number(digest_of(namespace))
        if space is None:
            return None
        self.spaces.enter(space)
        self.spaces.names[space] = namespace
        place = self.dram.reserve(size, self.spaces.part(space))
        if place is None:
            self.spaces.leave(space)
            return None
        return place, space

    def cancel(self, place: int, space: int, size: int) -> None:
        """It did not come."""
        self.dram.cancel(place, size, self.spaces.part(space))
        self.spaces.leave(space)

    def commit(self, place: int, space: int, value: Value) -> int:
        """It is there and can be found; gives its entry. Nobody else stored it meanwhile."""
        words = self.spaces.words(space, value.key)
        must(self.index.find(*words) == NONE, "a value is stored twice")
        entry = self._enter(words, space, value)
        self.dram.commit(entry, place, self.spaces.part(space))
        return entry

    def _enter(self, words: tuple[int, int], space: int, value: Value) -> int:
        index = self.index
        entry = index.add(*words)
        index.space[entry] = space
        index.size[entry] = value.size
        index.part[entry] = value.part_bytes
        index.check_of[entry] = value.check
        return entry

    # memory to disk, and back

    def reserve_disk(self, entry: int) -> tuple[int, bytes] | None:
        """Give (place on disk, label) for a copy of a value in memory; None: no room."""
        disk, index = self.disk, self.index
        if disk is None or disk.keeps(entry):
            return None
        record = self._records.take()
        if record is None and disk.evict_oldest():
            record = self._records.take()
        if record is None:
            return None
        place = disk.reserve(index.size[entry], self.part_of(entry))
        if place is None:
            self._records.give(record)
            return None
        self._order += 1
        self._record[entry] = record
        self._order_of[entry] = self._order & ORDER_MASK
        start, slots, units = disk.segments.span_of(place)
        label = Label(
            record=record,
            order=self._order,
            key=self.key_of(entry),
            namespace=self.spaces.digest(index.space[entry]),
            unit=place,
            size=index.size[entry],
            part_bytes=index.part[entry],
            span_start=start,
            span_slots=slots,
            slot_units=units,
            check=index.check_of[entry],
        )
        return place, labels.pack(label)

    def commit_disk(self, entry: int, place: int) -> None:
        """The copy on disk is there."""
        if self.disk is not None:
            self.disk.commit(entry, place, self.part_of(entry))

    def cancel_disk(self, entry: int, place: int) -> None:
        """It is not."""
        if self.disk is not None:
            self.disk.cancel(place, self.index.size[entry], self.part_of(entry))
            self._give_record(entry)

    def reserve_for(self, entry: int) -> int | None:
        """Give a place in memory for a value on disk; None: no room."""
        return self.dram.reserve(self.index.size[entry], self.part_of(entry))

    def install(self, entry: int, place: int) -> None:
        """The value of a disk has come to memory."""
        self.dram.commit(entry, place, self.part_of(entry))

    def cancel_for(self, entry: int, place: int) -> None:
        """It has not."""
        self.dram.cancel(place, self.index.size[entry], self.part_of(entry))

    # holding and dropping

    def hold(self, entry: int) -> None:
        """Keep its copy in memory where it is."""
        self.dram.hold(entry, self.part_of(entry))

    def release(self, entry: int) -> None:
        if self.dram.release(entry, self.part_of(entry)):
            self._forget_if_gone(entry)

    def hold_disk(self, entry: int) -> None:
        """Keep its copy on disk where it is."""
        if self.disk is not None:
            self.disk.hold(entry, self.part_of(entry))

    def release_disk(self, entry: int) -> None:
        if self.disk is not None and self.disk.release(entry, self.part_of(entry)):
            self._give_record(entry)
            self._forget_if_gone(entry)

    def drop(self, entry: int) -> None:
        """Its bytes are not what they should be (or are at home elsewhere): find it no more."""
        part = self.part_of(entry)
        if self.disk is not None and self.disk.has(entry) and self.disk.drop(entry, part):
            self._give_record(entry)
        if self.dram.has(entry):
            self.dram.drop(entry, part)
        self._forget_if_gone(entry)

    def close_disk(self) -> None:
        """The disk is of no use any more: what lies only there is lost."""
        disk = self.disk
        if disk is None:
            return
        for entry in list(self.index):
            if disk.has(entry) and disk.drop(entry, self.part_of(entry)):
                self._give_record(entry)
                self._forget_if_gone(entry)

    # what a former self left on disk

    def offer(self, label: Label) -> bool:
        """Take up a value that was found on disk; False if it cannot be one of ours."""
        disk, layout = self.disk, self.layout
        if disk is None or layout is None or not _is_sound(label, layout):
            return False
        self._order = max(self._order, label.order)
        self._replace_older(label)
        space = self.spaces.number(label.namespace)
        if space is None:
            return False
        self.spaces.enter(space)
        words = self.spaces.words(space, label.key)
        disk.segments.adopt(label.span_start, label.span_slots, label.slot_units)
        if self.index.find(*words) == NONE and disk.fits(self.spaces.part(space), label.size):
            value = Value(
                key=label.key, size=label.size, part_bytes=label.part_bytes, check=label.check
            )
            entry = self._enter(words, space, value)
            if disk.adopt(entry, label.unit, self.spaces.part(space)):
                self._records.adopt(label.record)
                self._record[entry] = label.record
                self._order_of[entry] = label.order & ORDER_MASK
                return True
            self.index.forget(entry)
        self.spaces.leave(space)
        return False

    def offered(self) -> None:
        """That was all."""
        self._records.adopted()

    def _replace_older(self, label: Label) -> None:
        disk = self.disk
        owner = disk.segments.owner_at(label.unit) if disk is not None else None
        if owner is None or not self.index.is_used(owner):
            return
        if self._order_of[owner] < label.order & ORDER_MASK and not self.dram.keeps(owner):
            self.drop(owner)

    # entries end

    def _left_dram(self, entry: int) -> None:
        self._forget_if_gone(entry)

    def _left_disk(self, entry: int) -> None:
        self._give_record(entry)
        self._forget_if_gone(entry)

    def _give_record(self, entry: int) -> None:
        self._records.give(self._record[entry])
        self._record[entry] = NONE

    def _forget_if_gone(self, entry: int) -> None:
        if self.dram.keeps(entry) or (self.disk is not None and self.disk.keeps(entry)):
            return
        space = self.index.space[entry]
        self.index.forget(entry)
        self.spaces.leave(space)

    def stats(self) -> StoreStats:
        return StoreStats(
            values=len(self.index),
            index_bytes=self.index.num_bytes,
            dram=self.dram.stats(),
            disk=None if self.disk is None else self.disk.stats(),
        )

    def check(self) -> None:
        """Raise unless index, tiers and namespaces agree; O(values)."""
        self.index.check()
        self.dram.check()
        if self.disk is not None:
            self.disk.check()
        values = dict.fromkeys(self.spaces.values(), 0)
        for entry in self.index:
            kept = self.dram.keeps(entry) or (self.disk is not None and self.disk.keeps(entry))
            must(kept, f"entry {entry} lies nowhere")
            values[self.index.space[entry]] += 1
        for space, count in self.spaces.values().items():
            must(values[space] <= count, f"namespace {space} has {values[space]} values")


class _Records:
    """Which records of the disk's list of labels are in use."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._next = 0
        self._free = array("I")
        self._adopted: bytearray | None = bytearray(total) if total else None

    def take(self) -> int | None:
        if self._free:
            return self._free.pop()
        if self._next == self._total:
            return None
        self._next += 1
        return self._next - 1

    def give(self, record: int) -> None:
        if self._adopted is not None:
            self._adopted[record] = 0
        else:
            self._free.append(record)

    def adopt(self, record: int) -> None:
        if self._adopted is not None:
            self._adopted[record] = 1

    def adopted(self) -> None:
        marks = self._adopted or bytearray()
        self._adopted = None
        self._next = marks.rfind(1) + 1
        self._free = array("I", (r for r in range(self._next - 1, -1, -1) if not marks[r]))


def _is_sound(label: Label, layout: DiskLayout) -> bool:
    return (
        label.record < layout.num_records
        and 0 < label.part_bytes <= label.size <= label.slot_units * layout.unit_bytes
        and label.slot_units > 0
        and label.span_slots > 0
        and (label.span_start + label.span_slots * label.slot_units) * layout.unit_bytes
        <= layout.data_bytes
    )
