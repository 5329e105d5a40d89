"""The inputs of a program's matrices, and which weights can take up a scale of their channels.

Dividing channel j of an input by s_j and multiplying column j of every matrix that reads it by s_j
changes nothing, and neither does dividing what makes the input instead of the input itself:

    norm(x) * w        the norm's weight w                        q k v, gate up
    silu(g) * up(x)    the rows of the matrix `up`                down
    attend(q, k, v)    the rows of the matrix `v`; heads that     o
                       share a key head share its rows

(SmoothQuant: Xiao et al. 2023, section 4; the last two as in later tools.)
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tercet.base.errors import must
from tercet.program.operations import Append, Attend, Embed, Glu, Linear, Norm, Operation
from tercet.program.program import Program
from tercet.program.recipes import sources
from tercet.program.tensors import Axis


@dataclass(frozen=True, slots=True, eq=False)
class Absorber:
    """Tensors whose first axis can be divided by a scale in place of an input's channels."""

    tensors: tuple[str, ...]
    """Of the checkpoint: the norm's weight, or a matrix and its bias."""
    entry: NDArray[np.int64]
    """[K] for each channel of the input the entry of the first axis that makes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One input and the matrices that read it, by the names of their checkpoint tensors."""

    name: str
    """Of the value in the unfused program."""
    columns: int
    readers: tuple[str, ...]
    absorber: Absorber | None
    """None where nothing can take up a scale."""


def sites(program: Program) -> tuple[Site, ...]:
    """The inputs of all matrices of an unfused program, in its order.

    Embedding and head are left out: they have a row for each token, and tools that read the result
    do not expect them in integers.
    """
    return tuple(_sites(program))


def _sites(program: Program) -> Iterator[Site]:
    makers = {name: one for one in program.operations for name in one.outputs}
    readers: dict[str, list[Operation]] = {}
    for operation in program.operations:
        for name in dict.fromkeys(operation.inputs):
            readers.setdefault(name, []).append(operation)
    for name, operations in readers.items():
        linears = [one for one in operations if isinstance(one.attributes, Linear)]
        linears = [one for one in linears if one.inputs[0] == name and not _is_table(one, program)]
        if not linears:
            continue
        alone = len(linears) == len(operations)
        yield Site(
            name=name,
            columns=math.prod(program.tensors[name].dims),
            readers=tuple(_tensor(program, one.inputs[1]) for one in linears),
            absorber=_absorber(name, program, makers) if alone else None,
        )


def _is_table(linear: Operation, program: Program) -> bool:
    weight = linear.inputs[1]
    looked_up = (one.inputs[1] for one in program.operations if isinstance(one.attributes, Embed))
    return weight in looked_up or program.tensors[weight].axes[0] is Axis.VOCAB


def _tensor(program: Program, weight: str) -> str:
    """The checkpoint tensor that the weight is."""
    names = [one.name for one in sources(program.weights[weight])]
    must(len(names) == 1, f"{weight} is made of {names}: calibrate before fusing")
    return names[0]


def _absorber(name: str, program: Program, makers: dict[str, Operation]) -> Absorber | None:
    maker = makers[name]
    count = math.prod(program.tensors[name].dims)
    match maker.attributes:
        case Norm():
            return Absorber((_tensor(program, maker.inputs[1]),), np.arange(count))
        case Glu():
            return _rows_of(maker.inputs[1], np.arange(count), program, makers)
        case Attend():
            appends = [
                one
                for one in program.operations
                if isinstance(one.attributes, Append) and one.inputs[0] == maker.inputs[1]
            ]
            if len(appends) != 1:
                return None
            values = appends[0].inputs[2]
            heads, head_dim = program.tensors[name].dims
            shared = heads // program.tensors[values].dims[0]
            head, place = np.divmod(np.arange(count), head_dim)
            return _rows_of(values, head // shared * head_dim + place, program, makers)
        case _:
            return None


def _rows_of(
    value: str, entry: NDArray[np.int64], program: Program, makers: dict[str, Operation]
) -> Absorber | None:
    """The rows of the matrix that makes the value, if nothing else reads the value."""
    maker = makers.get(value)
    read = sum(value in one.inputs for one in program.operations)
    if maker is None or not isinstance(maker.attributes, Linear) or read != 1:
        return None
    return Absorber(tuple(_tensor(program, one) for one in maker.inputs[1:]), entry)
