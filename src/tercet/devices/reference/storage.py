"""Where a program's values live: a few slots, reused from layer to layer.

A slot is a piece of memory of `width` numbers for each row of its group. A value is a range of a
slot's columns; the outputs of a split linear are neighbours in one slot, so that later operations
can treat them as one. An operation writes over an input that nobody reads afterwards.

    slot   |<-- q -->|<- k ->|<- v ->|        rows T
           start=0   576     768     960=width

Memory order differs, shapes do not: with many rows a slot is stored columns first ([width, T]),
because OpenBLAS multiplies W [N, K] by [K, T] up to a third faster than [T, K] by W^T (measured
with 4 to 128 rows, 0.3.31); with few rows, and for logits, it is stored rows first. Every view
that operations see is [rows, *dims] all the same.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tercet.devices.contract import F32
from tercet.program.operations import Add, Glu, Norm, Operation, Rope
from tercet.program.program import Program
from tercet.program.tensors import Dtype, RowGroup

ROWS_FIRST_MAX = 3
"""Up to so many rows, slots are stored rows first and products are done row by row."""
IN_PLACE = Norm | Rope | Glu | Add


@dataclass(frozen=True, slots=True)
class Place:
    """Columns start : start + prod(dims) of a slot."""

    slot: int
    start: int
    dims: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.dims)


@dataclass(frozen=True, slots=True)
class Slot:
    group: RowGroup
    width: int


@dataclass(frozen=True, slots=True)
class Storage:
    """Places of all float values of a program."""

    slots: tuple[Slot, ...]
    places: dict[str, Place]


def place(program: Program) -> Storage:
    """Give every float value a place, no two that live at the same time the same one."""
    planner = _Planner(program)
    for index, operation in enumerate(program.operations):
        planner.add(index, operation)
    return Storage(tuple(planner.slots), planner.places)


class _Planner:
    def __init__(self, program: Program) -> None:
        self.slots: list[Slot] = []
        self.places: dict[str, Place] = {}
        self._tensors = program.tensors
        self._free: dict[Slot, list[int]] = {}
        self._living: dict[int, int] = {}
        self._last_use = {
            name: index
            for index, operation in enumerate(program.operations)
            for name in operation.inputs
        }

    def add(self, index: int, operation: Operation) -> None:
        outputs = [self._tensors[name] for name in operation.outputs]
        outputs = [tensor for tensor in outputs if tensor.dtype is Dtype.F32]
        dying = [
            name
            for name in dict.fromkeys(operation.inputs)
            if name in self.places and self._last_use[name] == index
        ]
        if isinstance(operation.attributes, IN_PLACE):
            for output in outputs:
                taken = next((one for one in dying if self.places[one].dims == output.dims), None)
                if taken is not None:
                    dying.remove(taken)
                    self.places[output.name] = self.places[taken]
        fresh = [output for output in outputs if output.name not in self.places]
        if fresh:
            sizes = [math.prod(output.dims) for output in fresh]
            group = fresh[0].group or operation.group
            slot = self._take(Slot(group, sum(sizes)), len(fresh))
            for output, start in zip(fresh, np.cumsum([0, *sizes]), strict=False):
                self.places[output.name] = Place(slot, int(start), output.dims)
        for name in dying:
            self._release(self.places[name].slot)

    def _take(self, kind: Slot, count: int) -> int:
        free = self._free.setdefault(kind, [])
        if not free:
            self.slots.append(kind)
            free.append(len(self.slots) - 1)
        index = free.pop()
        self._living[index] = count
        return index

    def _release(self, index: int) -> None:
        self._living[index] -= 1
        if self._living[index] == 0:
            self._free[self.slots[index]].append(index)


class Views:
    """Views of all values for one number of rows in each group."""

    def __init__(
        self, storage: Storage, rows: dict[RowGroup, int], memory: Callable[[str, int], F32]
    ) -> None:
        self.rows = rows
        self._storage = storage
        self._memory = memory
        self._slots = [
            self._columns(f"slot {index}", slot.group, slot.width)
            for index, slot in enumerate(storage.slots)
        ]

    def rows_first(self, group: RowGroup) -> bool:
        return group is not RowGroup.STEP or self.rows[group] <= ROWS_FIRST_MAX

    def of(self, name: str) -> F32:
        """[rows, *dims] of a value."""
        return self.merged([name])

    def merged(self, names: Sequence[str]) -> F32:
        """[rows, sum of first dims, *rest] of values that are neighbours."""
        dims = self._storage.places[names[0]].dims
        lead = sum(self._storage.places[name].dims[0] for name in names)
        return self._shaped(names, (lead, *dims[1:]))

    def flat(self, names: Sequence[str]) -> F32:
        """[rows, all numbers] of values that are neighbours."""
        return self._shaped(names, (sum(self._storage.places[name].size for name in names),))

    def runs(self, names: Sequence[str]) -> list[list[str]]:
        """The names in order, neighbours (same slot, no gap, same trailing dims) together."""
        runs: list[list[str]] = []
        for name in names:
            here = self._storage.places[name]
            last = self._storage.places[runs[-1][-1]] if runs else None
            if (
                last is not None
                and (last.slot, last.start + last.size) == (here.slot, here.start)
                and last.dims[1:] == here.dims[1:]
            ):
                runs[-1].append(name)
            else:
                runs.append([name])
        return runs

    def scratch(self, group: RowGroup, dims: tuple[int, ...], use: str = "scratch") -> F32:
        """[rows, *dims] in the group's memory order, valid within one operation."""
        columns = self._columns(f"{use} {group}", group, math.prod(dims))
        return _unfold(columns, dims, rows_first=self.rows_first(group))

    def _columns(self, use: str, group: RowGroup, width: int) -> F32:
        """A piece of memory as [width, rows] or, rows first, [rows, width]."""
        rows = self.rows[group]
        flat = self._memory(use, rows * width)
        return flat.reshape((rows, width) if self.rows_first(group) else (width, rows))

    def _shaped(self, names: Sequence[str], dims: tuple[int, ...]) -> F32:
        first = self._storage.places[names[0]]
        rows_first = self.rows_first(self._storage.slots[first.slot].group)
        columns = slice(first.start, first.start + math.prod(dims))
        memory = self._slots[first.slot]
        cut = memory[:, columns] if rows_first else memory[columns]
        return _unfold(cut, dims, rows_first=rows_first)


def _unfold(columns: F32, dims: tuple[int, ...], *, rows_first: bool) -> F32:
    if rows_first:
        return columns.reshape(columns.shape[0], *dims)
    return np.moveaxis(columns.reshape(*dims, columns.shape[1]), -1, 0)
