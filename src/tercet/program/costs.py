"""FLOPs and bytes of operations as linear forms over the sizes of a step, never polynomials."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

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
from tercet.program.program import Program
from tercet.program.tensors import RowGroup, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What a step's cost depends on."""

    rows: int
    """T."""
    logits_rows: int
    """R."""
    attended_pairs: int
    """P: sum over rows of the keys that the row sees."""
    context_tokens: int
    """C: sum over sequences of their tokens after the step."""


@dataclass(frozen=True, slots=True)
class LinearForm:
    """one + T t + R r + P p + C c."""

    one: float = 0.0
    t: float = 0.0
    r: float = 0.0
    p: float = 0.0
    c: float = 0.0

    def __add__(self, other: "LinearForm") -> "LinearForm":
        return LinearForm(
            self.one + other.one,
            self.t + other.t,
            self.r + other.r,
            self.p + other.p,
            self.c + other.c,
        )

    def at(self, sizes: Sizes) -> float:
        return (
            self.one
            + self.t * sizes.rows
            + self.r * sizes.logits_rows
            + self.p * sizes.attended_pairs
            + self.c * sizes.context_tokens
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """Multiply and add count as two FLOPs; bytes are those of reading and writing each once."""

    flops: LinearForm
    bytes: LinearForm

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.flops + other.flops, self.bytes + other.bytes)


NOTHING = Cost(LinearForm(), LinearForm())


def cost(program: Program) -> Cost:
    """What one step of the whole program costs."""
    return sum((operation_cost(one, program.tensors) for one in program.operations), NOTHING)


def folded(program: Program) -> dict[tuple[str, Cost], int]:
    """How often each distinct (operation name, cost) occurs: a handful for any depth."""
    counts: dict[tuple[str, Cost], int] = {}
    for operation in program.operations:
        key = (operation.name, operation_cost(operation, program.tensors))
        counts[key] = counts.get(key, 0) + 1
    return counts


def operation_cost(  # noqa: C901, PLR0911  one case for each operation
    operation: Operation, tensors: Mapping[str, Tensor]
) -> Cost:
    """What one operation costs, as forms over the sizes of a step."""
    inputs = [tensors[name] for name in operation.inputs]
    outputs = [tensors[name] for name in operation.outputs]
    width = sum(_elements(tensor) for tensor in outputs)
    group = operation.group
    values = sum(_elements(tensor) for tensor in [*inputs, *outputs] if tensor.group is group)
    line = _elements(outputs[0] if isinstance(operation.attributes, Embed) else inputs[0])
    weights = sum(_stored_bytes(tensor, line) for tensor in inputs if tensor.group is None)
    moved = _per_row(group, 4.0 * values) + LinearForm(one=float(weights))
    match operation.attributes:
        case Embed():
            # Of the table only the rows' own lines are read.
            read = inputs[1].format.stored_bytes(1, line)
            return Cost(LinearForm(), _per_row(group, 4.0 * width + read))
        case Linear(bias, _, gated):
            inner = _elements(inputs[0])
            # A gated one computes both halves, and what `Glu` does.
            each = 2.0 * (2.0 * inner + bias) + 5.0 if gated else 2.0 * inner + bias
            return Cost(_per_row(group, width * each), moved)
        case Attend():
            query, state = inputs
            # Two products, and maximum, difference, exponent, sum and division per head and key.
            pair = 4.0 * _elements(query) + 5.0 * query.dims[0]
            return Cost(LinearForm(p=pair), moved + LinearForm(c=4.0 * _elements(state)))
        case Append():
            appended = float(sum(_elements(tensor) for tensor in inputs[1:]))
            return Cost(LinearForm(), _per_row(group, 8.0 * appended))
        case Signal():
            return NOTHING
        case Norm() | Rope():
            return Cost(_per_row(group, 4.0 * width), moved)
        case Angles() | Glu():
            return Cost(_per_row(group, 5.0 * width), moved)
        case Add():
            return Cost(_per_row(group, float(width)), moved)
        case Rows():
            return Cost(LinearForm(), _per_row(RowGroup.LOGITS, 8.0 * width))
        case Sample():
            logits = _elements(inputs[0])
            return Cost(_per_row(group, 2.0 * logits), moved)
        case _:
            assert_never(operation.attributes)


def _stored_bytes(weight: Tensor, line: int) -> int:
    """Size of a weight with rows of `line` numbers (a matrix), or of any (a norm, a bias)."""
    size = _elements(weight)
    columns = math.gcd(size, line)
    return weight.format.stored_bytes(size // columns, columns)


def _elements(tensor: Tensor) -> int:
    return math.prod(tensor.dims)


def _per_row(group: RowGroup, amount: float) -> LinearForm:
    match group:
        case RowGroup.STEP:
            return LinearForm(t=amount)
        case RowGroup.LOGITS:
            return LinearForm(r=amount)
        case RowGroup.CONTEXT:
            return LinearForm(c=amount)
        case _:
            assert_never(group)
