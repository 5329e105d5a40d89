"""From a program to native operations: who reads a value decides how it is written.

    Norm, read by linears of one format    writes that format's grid at once (bf16, int8 ...)
    Linear, read by the Add of a residual  adds to the residual in place
    Norm of heads, Rope                    in place, on columns of what the linear wrote
    anything else                          float32, converted where a linear needs it

Values are named by their native id and the column where they begin.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from types import ModuleType
from typing import Any, assert_never

import numpy as np

from tercet.base.errors import must
from tercet.devices.contract import F32
from tercet.devices.cpu.packing import native_format
from tercet.devices.rotary import rotary_frequencies
from tercet.program.formats import Format
from tercet.program.operations import (
    Add,
    Angles,
    Append,
    Attend,
    Embed,
    Glu,
    Linear,
    Norm,
    Operation,
    Rope,
    Rows,
    Sample,
    Signal,
)
from tercet.program.packing import StoredWeight
from tercet.program.program import Program
from tercet.program.tensors import RowGroup

View = tuple[int, int]
"""Native value and first column."""
_PANEL = 32


class Lowering:
    """Adds a program's operations to a native program, in order."""

    def __init__(
        self,
        program: Program,
        weights: Mapping[str, StoredWeight],
        *,
        native: ModuleType,
        to: Any,
    ) -> None:
        self._program = program
        self._weights = weights
        self._native = native
        self._to = to
        self._readers: dict[str, list[int]] = defaultdict(list)
        for place, operation in enumerate(program.operations):
            for name in operation.inputs:
                self._readers[name].append(place)
        self._states = {state.name: layer for layer, state in enumerate(program.states)}
        self._views: dict[str, View] = {}
        self._grids: dict[tuple[str, str], int] = {}
        """Value of (name, grid) for what a linear reads."""
        self._skipped: set[int] = set()
        self.kept: list[object] = []
        """Arrays that the native program reads in place."""

    def run(self) -> None:
        """All operations are added."""
        for place, operation in enumerate(self._program.operations):
            if place not in self._skipped:
                self._lower(place, operation)

    def _lower(  # noqa: C901  one case for each operation
        self, place: int, operation: Operation
    ) -> None:
        match operation.attributes:
            case Embed():
                self._embed(operation)
            case Norm(eps):
                self._norm(operation, eps)
            case Linear():
                self._linear(place, operation, operation.attributes)
            case Angles():
                frequencies = rotary_frequencies(operation.attributes).astype(np.float64).tolist()
                self._to.angles(_named(operation), frequencies, self._new(operation.outputs[0])[0])
            case Rope():
                self._rope(operation)
            case Append():
                state, keys, values = operation.inputs
                layer = self._states[state]
                self._to.append(_named(operation), layer, self._views[keys], self._views[values])
            case Signal(layer):
                self._to.signal(_named(operation), layer)
            case Attend(scale):
                query, state = operation.inputs
                value, _ = self._new(operation.outputs[0])
                layer = self._states[state]
                self._to.attend(_named(operation), layer, self._views[query], scale, value)
            case Glu() | Add():
                add = self._to.add if isinstance(operation.attributes, Add) else self._to.glu
                a, b = (self._views[name] for name in operation.inputs)
                value, _ = self._new(operation.outputs[0])
                add(_named(operation), a, b, self._width(operation.outputs[0]), value)
            case Rows():
                value, _ = self._new(operation.outputs[0])
                source, column = self._views[operation.inputs[0]]
                must(column == 0, f"rows of a part of a value: {operation}")
                self._to.rows(_named(operation), source, value)
            case Sample():
                self._to.sample(_named(operation), self._views[operation.inputs[0]][0])
            case _:
                assert_never(operation.attributes)

    def _embed(self, operation: Operation) -> None:
        name = operation.inputs[1]
        value, _ = self._new(operation.outputs[0])
        table, k = self._weights[name], self._width(operation.outputs[0])
        self.kept.append(table.data)
        form = native_format(self._native, table.format)
        rows = math.prod(table.shape) // k
        self._to.embed(_named(operation), table.data, form, rows, k, value)

    def _norm(self, operation: Operation, eps: float) -> None:
        source, output = operation.inputs[0], operation.outputs[0]
        weight = self._vector(operation.inputs[1])
        dims = self._program.tensors[source].dims
        if len(dims) > 1:
            must(len(self._readers[source]) == 1, f"{source} is normed in place")
            view = self._views[output] = self._views[source]
            heads = math.prod(dims[:-1])
            self._to.head_norm(_named(operation), view, heads, dims[-1], weight, eps)
            return
        width = self._width(output)
        grids = {self._grid_of(place) for place in self._readers[output]}
        if len(grids) == 1 and (grid := grids.pop()) != "F32":
            value = self._value(output, grid)
            self._grids[output, grid] = value
        else:
            value, _ = self._new(output)
        self._to.norm(_named(operation), self._views[source], width, weight, eps, value)

    def _linear(self, place: int, operation: Operation, linear: Linear) -> None:
        source, name = operation.inputs[:2]
        weight = self._weights[name]
        must(weight.format is not Format.F32, f"{name} is not packed as a matrix")
        k = self._width(source)
        n = math.prod(weight.shape) // k
        bias = self._bias(operation.inputs[2], n) if linear.bias else None
        epilogue = self._native.Epilogue.GLU if linear.gated else self._native.Epilogue.STORE
        residual = None if linear.gated or linear.splits else self._residual(place, operation)
        x = self._on_grid(source, _GRIDS.get(weight.format, "GROUP"))
        if residual is not None:
            add, base = residual
            epilogue = self._native.Epilogue.ADD
            value = self._views[base][0]
            self._skipped.add(add)
            self._views[self._program.operations[add].outputs[0]] = self._views[base]
        else:
            value = self._value(operation.outputs[0], "F32", n // 2 if linear.gated else n)
            column = 0
            for output in operation.outputs:
                self._views[output] = (value, column)
                column += self._width(output)
        self.kept.append(weight.data)
        form = native_format(self._native, weight.format)
        self._to.linear(_named(operation), x, weight.data, form, n, k, epilogue, bias, value)

    def _residual(self, place: int, operation: Operation) -> tuple[int, str] | None:
        """The Add that alone reads the linear's output, and its other input, where that one is not
        read afterwards: the sum may be written over it.
        """
        output = operation.outputs[0]
        if len(self._readers[output]) != 1:
            return None
        (reader,) = self._readers[output]
        add = self._program.operations[reader]
        if not isinstance(add.attributes, Add):
            return None
        base = add.inputs[0] if add.inputs[1] == output else add.inputs[1]
        others = [one for one in self._readers[base] if one != reader]
        view = self._views.get(base)
        if base == output or view is None or view[1] != 0 or any(one > place for one in others):
            return None
        return reader, base

    def _rope(self, operation: Operation) -> None:
        """In place; neighbouring heads of one value at once."""
        angles = self._views[operation.inputs[0]][0]
        runs: list[tuple[View, int, int]] = []
        for source, output in zip(operation.inputs[1:], operation.outputs, strict=True):
            must(len(self._readers[source]) == 1, f"{source} is rotated in place")
            heads, width = self._program.tensors[source].dims
            view = self._views[output] = self._views[source]
            if runs:
                (value, column), count, _ = runs[-1]
                if (value, column + count * width) == view:
                    runs[-1] = ((value, column), count + heads, width)
                    continue
            runs.append((view, heads, width))
        for view, heads, width in runs:
            self._to.rope(_named(operation), view, heads, width, angles)

    def _on_grid(self, name: str, grid: str) -> int:
        """The value's numbers on a grid, converted now if they are not yet."""
        if (name, grid) not in self._grids:
            value = self._grids[name, grid] = self._value(name, grid)
            self._to.convert(f"{name}.{grid.lower()}", self._views[name], value)
        return self._grids[name, grid]

    def _grid_of(self, place: int) -> str:
        """How an operation reads its first input."""
        operation = self._program.operations[place]
        if not isinstance(operation.attributes, Linear):
            return "F32"
        return _GRIDS.get(self._weights[operation.inputs[1]].format, "GROUP")

    def _new(self, name: str) -> View:
        """A float32 value of its own."""
        view = self._views[name] = (self._value(name, "F32"), 0)
        return view

    def _value(self, name: str, grid: str, width: int | None = None) -> int:
        tensor, native = self._program.tensors[name], self._native
        group = native.Group.LOGITS if tensor.group is RowGroup.LOGITS else native.Group.STEP
        return int(self._to.value(group, getattr(native.Grid, grid), width or self._width(name)))

    def _width(self, name: str) -> int:
        return math.prod(self._program.tensors[name].dims)

    def _vector(self, name: str) -> F32:
        vector = self._weights[name].data.view(np.float32)
        self.kept.append(vector)
        return vector

    def _bias(self, name: str, n: int) -> F32:
        padded = np.zeros(-(-n // _PANEL) * _PANEL, np.float32)
        padded[:n] = self._vector(name)
        self.kept.append(padded)
        return padded


_GRIDS = {Format.BF16: "BF16", Format.INT8: "TOKEN"}
"""How a linear over a weight of this format reads its input; blocks: `GROUP`."""


def _named(operation: Operation) -> str:
    """A name for profiles and errors: what it gives, or what it changes."""
    result = operation.outputs[0] if operation.outputs else operation.inputs[0]
    return f"{operation.name} {result}"
