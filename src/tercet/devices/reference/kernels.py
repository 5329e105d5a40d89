"""Each operation as a function without arguments over views that were made before.

`Kernels.compile` is called once for each operation and number of rows; the functions it returns
run in every step of that size. A step's own facts are read from `state.step`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import assert_never

import numpy as np

from tercet.base.ids import BLOCK_TOKENS
from tercet.devices.contract import F32
from tercet.devices.reference.attention import Attention
from tercet.devices.reference.products import Product
from tercet.devices.reference.state import State
from tercet.devices.reference.storage import ROWS_FIRST_MAX, Views
from tercet.devices.rotary import rotary_frequencies
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
from tercet.program.recipes import RUN

Kernel = Callable[[], object]
_ONE = np.float32(1.0)


class Kernels:
    """Compiles operations for one number of rows."""

    def __init__(
        self,
        weights: Mapping[str, F32],
        views: Views,
        *,
        products: Mapping[str, Product],
        state: State,
        attention: Attention,
    ) -> None:
        self._weights = weights
        self._views = views
        self._products = products
        self._state = state
        self._attention = attention

    def compile(  # noqa: C901, PLR0911, PLR0912  one case for each operation
        self, operation: Operation
    ) -> list[Kernel]:
        match operation.attributes:
            case Embed():
                return [self._embed(operation)]
            case Norm(eps):
                return [self._norm(operation, eps)]
            case Linear(bias, _, gated):
                out = self._pair(operation) if gated else self._views.flat(operation.outputs)
                calls = [self._linear(operation, out)]
                if bias:
                    calls.append(self._bias(operation, out))
                if gated:
                    calls.append(self._gate(operation, out))
                return calls
            case Angles():
                return [self._angles(operation, operation.attributes)]
            case Rope():
                return self._rope(operation)
            case Append():
                return self._append(operation)
            case Signal():
                return [self._state.signal]
            case Attend(scale):
                return [self._attend(operation, scale)]
            case Glu():
                return [self._glu(operation)]
            case Add():
                x, y, out = self._all(operation)
                return [partial(np.add, x, y, out=out)]
            case Rows():
                return [self._rows(operation)]
            case Sample():
                return []
            case _:
                assert_never(operation.attributes)

    def _all(self, operation: Operation) -> list[F32]:
        return [self._views.of(name) for name in (*operation.inputs, *operation.outputs)]

    def _output(self, operation: Operation) -> F32:
        return self._views.of(operation.outputs[0])

    def _embed(self, operation: Operation) -> Kernel:
        table, out, state = self._weights[operation.inputs[1]], self._output(operation), self._state

        def embed() -> None:
            out[...] = table.take(state.step.ids, axis=0)

        return embed

    def _rows(self, operation: Operation) -> Kernel:
        x, out = self._all(operation)
        state = self._state

        def rows() -> None:
            out[...] = x[state.step.logits_rows]

        return rows

    def _norm(self, operation: Operation, eps: float) -> Kernel:
        x, out = self._views.of(operation.inputs[0]), self._output(operation)
        weight = self._weights[operation.inputs[1]]
        squares = self._views.scratch(operation.group, x.shape[1:])
        scale = self._views.scratch(operation.group, (*x.shape[1:-1], 1), "scale")
        part = np.float32(1.0 / x.shape[-1])
        small = np.float32(eps)

        def norm() -> None:
            np.multiply(x, x, out=squares)
            np.add.reduce(squares, axis=-1, keepdims=True, out=scale)
            np.multiply(scale, part, out=scale)
            np.add(scale, small, out=scale)
            np.sqrt(scale, out=scale)
            np.divide(x, scale, out=out)
            np.multiply(out, weight, out=out)

        return norm

    def _linear(self, operation: Operation, out: F32) -> Kernel:
        x = self._views.flat(operation.inputs[:1])
        product = self._products.get(operation.inputs[1])
        if product is not None:
            return partial(product, x, out)
        matrix = self._weights[operation.inputs[1]].reshape(out.shape[1], x.shape[1])
        if len(x) <= ROWS_FIRST_MAX:
            # OpenBLAS takes 2.4 times as long for two rows as for one: one after another is faster.
            pairs = list(zip(x, out, strict=True))

            def row_by_row() -> None:
                for one, result in pairs:
                    np.dot(matrix, one, out=result)

            return row_by_row
        if self._views.rows_first(operation.group):
            return partial(np.matmul, x, matrix.T, out=out)
        return partial(np.matmul, matrix, x.T, out=out.T)

    def _pair(self, operation: Operation) -> F32:
        """[rows, N] for both halves of a gated linear."""
        (rows, *_), weight = self._output(operation).shape, self._weights[operation.inputs[1]]
        return np.empty((rows, len(weight)), np.float32)

    def _gate(self, operation: Operation, pair: F32) -> Kernel:
        out = self._output(operation)
        turns = pair.reshape(len(pair), -1, 2, RUN)

        def glu() -> None:
            first, second = (turns[:, :, half].reshape(out.shape) for half in (0, 1))
            np.multiply(first / (_ONE + np.exp(-first)), second, out=out)

        return glu

    def _bias(self, operation: Operation, out: F32) -> Kernel:
        return partial(np.add, out, self._weights[operation.inputs[2]].reshape(-1), out=out)

    def _angles(self, operation: Operation, angles: Angles) -> Kernel:
        half = angles.head_dim // 2
        out, state = self._output(operation), self._state
        frequencies = rotary_frequencies(angles)

        def fill() -> None:
            turns = state.step.positions[:, None].astype(np.float32) * frequencies
            # Rounded to float32 like the models' own code; the functions exact to the last place.
            exact = turns.astype(np.float64)
            sines = np.sin(exact)
            out[:, 0, :half] = out[:, 0, half:] = np.cos(exact)
            out[:, 1, half:] = sines
            out[:, 1, :half] = -sines

        return fill

    def _rope(self, operation: Operation) -> list[Kernel]:
        cs = self._views.of(operation.inputs[0])
        kernels = []
        inputs, outputs = operation.inputs[1:], operation.outputs
        runs = self._views.runs(inputs)
        if [len(run) for run in runs] != [len(run) for run in self._views.runs(outputs)]:
            runs = [[name] for name in inputs]
        after = iter(outputs)
        for run in runs:
            x = self._views.merged(run)
            out = self._views.merged([next(after) for _ in run])
            kernels.append(self._rotate(operation, cs, x, out))
        return kernels

    def _rotate(self, operation: Operation, cs: F32, x: F32, out: F32) -> Kernel:
        num_rows, heads, head_dim = x.shape
        shape = (heads, 2, head_dim // 2)
        crossed = self._views.scratch(operation.group, shape)
        swapped = x.reshape(num_rows, *shape)[:, :, ::-1]
        cosines = cs[:, :1]
        sines = cs[:, 1].reshape(num_rows, 1, *shape[1:])
        whole = crossed.reshape(x.shape)

        def rotate() -> None:
            np.multiply(swapped, sines, out=crossed)
            np.multiply(x, cosines, out=out)
            np.add(out, whole, out=out)

        return rotate

    def _append(self, operation: Operation) -> list[Kernel]:
        state = self._state
        shift = state.shift(operation.inputs[0]) * BLOCK_TOKENS
        kernels: list[Kernel] = []
        first = 0
        for run in self._views.runs(operation.inputs[1:]):
            x = self._views.merged(run)
            columns = slice(first, first + x.shape[1])
            first = columns.stop

            def append(x: F32 = x, columns: slice = columns) -> None:
                state.cells[state.step.cells[:, columns] + shift] = x

            kernels.append(append)
        return kernels

    def _attend(self, operation: Operation, scale: float) -> Kernel:
        q, out = self._views.of(operation.inputs[0]), self._output(operation)
        shift = self._state.shift(operation.inputs[1])
        state, attention, factor = self._state, self._attention, np.float32(scale)

        def attend() -> None:
            attention.run(q, out, lines=state.lines, shift=shift, scale=factor)

        return attend

    def _glu(self, operation: Operation) -> Kernel:
        gate, up, out = self._all(operation)
        bottom = self._views.scratch(operation.group, gate.shape[1:])

        def glu() -> None:
            # gate / (1 + exp(-gate)); the exponent may overflow to inf, whose quotient is right.
            np.negative(gate, out=bottom)
            np.exp(bottom, out=bottom)
            np.add(bottom, _ONE, out=bottom)
            np.divide(gate, bottom, out=bottom)
            np.multiply(bottom, up, out=out)

        return glu
