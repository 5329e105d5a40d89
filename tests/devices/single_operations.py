"""Programs that show what one operation gives: values come from embeddings, leave as logits.

Value `name` of a row with token i is line i of the table `name`; a linear with the identity as
its weights carries the result, unchanged by rounding, to where it can be read.
"""

import math
from collections.abc import Sequence as Listing

import numpy as np

from tercet.devices.direct import Direct, Sequence
from tercet.devices.reference import ReferenceDevice
from tercet.program.operations import (
    Append,
    Attend,
    Attributes,
    Embed,
    Linear,
    Operation,
    Rows,
    Sample,
)
from tercet.program.program import Program, assemble
from tercet.program.recipes import Ckpt
from tercet.program.tensors import Axis, Dtype, Kind, RowGroup, Tensor

VOCAB = 29
KV = (2, 3, 4)
Arrays = dict[str, np.ndarray]


def table(name: str, *dims: int) -> np.ndarray:
    chance = np.random.default_rng(sum(map(ord, name)))
    return chance.standard_normal((VOCAB, *dims)).astype(np.float32)


def operation(
    attributes: Attributes, inputs: Listing[str], *outputs: str, group: RowGroup = RowGroup.STEP
) -> Operation:
    return Operation(attributes=attributes, inputs=tuple(inputs), outputs=outputs, group=group)


def program_of(
    operations: Listing[Operation], tables: Arrays, weights: Arrays, shown: str, size: int
) -> tuple[Program, Arrays]:
    """Tables are embedded, the operations run, `shown` (of `size` numbers a row) is the logits."""
    eye = np.eye(size, dtype=np.float32)
    probe = {"probe.q": table("probe.q", 6, 4), "probe.k": table("probe.k", 3, 4)}
    every = {f"table.{name}": value for name, value in (tables | probe).items()} | weights
    given = [_input("ids"), _input("positions"), _state()]
    given += [_weight(name, value.shape) for name, value in every.items()]
    listed = [operation(Embed(), ("ids", f"table.{name}"), name) for name in [*tables, *probe]] + [
        # A device expects that a program attends.
        operation(Append(), ("kv", "probe.k", "probe.k")),
        operation(Attend(0.5), ("probe.q", "kv"), "probe.out"),
        *operations,
    ]
    dims = assemble("probe", given, listed).tensors[shown].dims
    every["eye"] = eye.reshape(size, *dims)
    given.append(_weight("eye", every["eye"].shape))
    listed += [
        operation(Linear(), (shown, "eye"), "flat"),
        operation(Rows(), ("flat",), "logits", group=RowGroup.LOGITS),
        operation(Sample(), ("logits",), "tokens", group=RowGroup.LOGITS),
    ]
    return assemble("probe", given, listed), every


def run(
    operations: Listing[Operation], *, tables: Arrays, weights: Arrays, shown: str, rows: int
) -> tuple[np.ndarray, Arrays, np.ndarray]:
    """The shown value [rows, dims], the embedded values of the rows in float64, positions."""
    dims = _dims(operations, tables, weights, shown)
    program, every = program_of(operations, tables, weights, shown, math.prod(dims))
    direct = Direct(ReferenceDevice().compile(program, every), rows // 16 + 2)
    ids = [int(token) for token in np.random.default_rng(rows).integers(0, VOCAB, rows)]
    step = direct.batch([(Sequence(), ids)], every_row=True)
    logits = direct._executable.logits(step)
    values = {name: value[ids].astype(np.float64) for name, value in tables.items()}
    return logits.reshape(rows, *dims), values, step.positions


def _dims(
    operations: Listing[Operation], tables: Arrays, weights: Arrays, shown: str
) -> tuple[int, ...]:
    given = [_input("ids"), _input("positions"), _state()]
    given += [_weight(f"table.{name}", value.shape) for name, value in tables.items()]
    given += [_weight(name, value.shape) for name, value in weights.items()]
    embedded = [operation(Embed(), ("ids", f"table.{name}"), name) for name in tables]
    return assemble("dims", given, [*embedded, *operations]).tensors[shown].dims


def _input(name: str) -> Tensor:
    return Tensor(
        name=name, kind=Kind.INPUT, dims=(), axes=(), group=RowGroup.STEP, dtype=Dtype.I32
    )


def _state() -> Tensor:
    return Tensor(
        name="kv", kind=Kind.STATE, dims=KV, axes=(Axis.FUSED,) * 3, group=RowGroup.CONTEXT
    )


def _weight(name: str, dims: tuple[int, ...]) -> Tensor:
    axes = (Axis.HIDDEN,) * len(dims)
    return Tensor(name=name, kind=Kind.WEIGHT, dims=dims, axes=axes, recipe=Ckpt(name, dims))
