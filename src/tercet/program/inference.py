"""What an operation's outputs look like, from its inputs; contradictions stop the process."""

from collections.abc import Mapping
from typing import assert_never

from tercet.base.errors import must
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
from tercet.program.tensors import Axis, Dtype, Kind, RowGroup, Tensor


def infer(operation: Operation, tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """The outputs of one operation over known tensors."""
    inputs = [tensors[name] for name in operation.inputs]
    shapes = _shapes(operation, inputs)
    # Sentences are spelled only where something is wrong: a program is inferred at every start.
    if len(shapes) != len(operation.outputs):
        must(False, f"{operation.name} gives {len(shapes)} tensors, not {operation.outputs}")
    group = RowGroup.LOGITS if isinstance(operation.attributes, Rows) else operation.group
    dtype = Dtype.I32 if isinstance(operation.attributes, Sample) else Dtype.F32
    return tuple(
        [
            Tensor(name=name, kind=Kind.VALUE, dims=dims, axes=axes, group=group, dtype=dtype)
            for name, (dims, axes) in zip(operation.outputs, shapes, strict=True)
        ]
    )


_Shape = tuple[tuple[int, ...], tuple[Axis, ...]]


def _shapes(  # noqa: C901, PLR0911, PLR0912  one case for each operation
    operation: Operation, inputs: list[Tensor]
) -> list[_Shape]:
    first = inputs[0]
    match operation.attributes:
        case Embed():
            (_, table) = inputs
            return [(table.dims[1:], table.axes[1:])]
        case Norm():
            (x, weight) = inputs
            _agree(x.dims[-1:], weight.dims, operation)
            return [(x.dims, x.axes)]
        case Linear(bias, splits, gated):
            shapes = _linear(operation, inputs, bias=bias, splits=splits)
            return [_half(shape, operation) for shape in shapes] if gated else shapes
        case Angles(head_dim, _, divisors):
            must(len(divisors) in (0, head_dim // 2), f"{len(divisors)} divisors for {head_dim}")
            return [((2, head_dim), (Axis.HEAD, Axis.HEAD))]
        case Rope():
            for x in inputs[1:]:
                _agree(x.dims[-1:], first.dims[1:], operation)
            return [(x.dims, x.axes) for x in inputs[1:]]
        case Append():
            for x in inputs[1:]:
                _agree(x.dims, first.dims[1:], operation)
            _agree((len(inputs) - 1,), first.dims[:1], operation)
            return []
        case Signal():
            must(first.kind is Kind.STATE, f"{first.name} is no state")
            return []
        case Attend():
            (q, state) = inputs
            _agree(q.dims[1:], state.dims[2:], operation)
            if state.dims[0] != 2 or q.dims[0] % state.dims[1]:
                must(False, f"{q.name} over {state.name}")
            return [(q.dims, q.axes)]
        case Glu() | Add():
            _agree(first.dims, inputs[1].dims, operation)
            return [(first.dims, first.axes)]
        case Rows():
            must(first.group is RowGroup.STEP, f"rows of {first.name}")
            return [(first.dims, first.axes)]
        case Sample():
            return [((), ())]
        case _:
            assert_never(operation.attributes)


def _linear(
    operation: Operation, inputs: list[Tensor], *, bias: bool, splits: tuple[int, ...]
) -> list[_Shape]:
    if len(inputs) != 2 + bias:
        must(False, f"linear over {operation.inputs}")
    x, weight = inputs[:2]
    rank = len(weight.dims) - len(x.dims)
    if rank <= 0:
        must(False, f"{weight.name} has no output dimension over {x.name}")
    _agree(weight.dims[rank:], x.dims, operation)
    dims, axes = weight.dims[:rank], weight.axes[:rank]
    if bias:
        _agree(inputs[2].dims, dims, operation)
    if not splits:
        return [(dims, axes)]
    if sum(splits) != dims[0]:
        must(False, f"{operation.outputs} split {dims[0]} into {splits}")
    return [((size, *dims[1:]), axes) for size in splits]


def _half(shape: _Shape, operation: Operation) -> _Shape:
    (size, *rest), axes = shape
    must(size % (2 * RUN) == 0, f"{operation.outputs} are gated, of {size} rows")
    return (size // 2, *rest), axes


def _agree(one: tuple[int, ...], other: tuple[int, ...], operation: Operation) -> None:
    if one != other:
        must(False, f"{operation.name}{operation.inputs}: {one} does not fit {other}")
