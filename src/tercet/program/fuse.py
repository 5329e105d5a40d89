"""Rewrite: linear operations over the same input become one with split outputs.

One larger product reads its input once and, on a device that calls a library per product, saves
calls: q, k, v become one, gate and up become one. Weights that are stored in different formats stay
apart. Apply after anything that divides axes, and after `quantize`.
"""

from tercet.program.formats import Format
from tercet.program.operations import Linear, Operation
from tercet.program.program import Program, assemble
from tercet.program.recipes import Concat, Recipe
from tercet.program.tensors import Axis, Kind, RowGroup, Tensor

_Key = tuple[str, RowGroup, bool, tuple[int, ...], Format]


def fuse(program: Program) -> Program:
    """The same computation with as few linear operations as its inputs allow."""
    groups: dict[_Key, list[Operation]] = {}
    for operation in program.operations:
        if (key := _key(operation, program)) is not None:
            groups.setdefault(key, []).append(operation)
    given = {
        tensor.name: tensor for tensor in program.tensors.values() if tensor.kind is not Kind.VALUE
    }
    operations: list[Operation] = []
    for operation in program.operations:
        key = _key(operation, program)
        members = groups.get(key, []) if key is not None else []
        if len(members) < 2:
            operations.append(operation)
        elif operation is members[0]:
            operations.append(_join(members, program, given))
    read = {name for operation in operations for name in operation.inputs}
    kept = [one for one in given.values() if one.kind is not Kind.WEIGHT or one.name in read]
    return assemble(program.name, kept, operations)


def _key(operation: Operation, program: Program) -> _Key | None:
    """What linear operations must share to become one; None for those that stay alone."""
    attributes = operation.attributes
    if not isinstance(attributes, Linear) or attributes.splits:
        return None
    weight = program.tensors[operation.inputs[1]]
    form = weight.format
    return operation.inputs[0], operation.group, attributes.bias, weight.dims[1:], form


def _join(members: list[Operation], program: Program, given: dict[str, Tensor]) -> Operation:
    bias = isinstance(members[0].attributes, Linear) and members[0].attributes.bias
    sources = []
    for position in range(1, 2 + bias):
        parts = [program.tensors[member.inputs[position]] for member in members]
        joined = _concat(parts)
        given[joined.name] = joined
        sources.append(joined.name)
    sizes = tuple(program.tensors[member.inputs[1]].dims[0] for member in members)
    return Operation(
        attributes=Linear(bias=bias, splits=sizes),
        inputs=(members[0].inputs[0], *sources),
        outputs=tuple(member.outputs[0] for member in members),
        group=members[0].group,
    )


def _concat(parts: list[Tensor]) -> Tensor:
    prefix, _, first = parts[0].name.rpartition(".")
    names = [first, *(part.name.rpartition(".")[2] for part in parts[1:])]
    recipes: list[Recipe] = [part.recipe for part in parts if part.recipe is not None]
    recipe = Concat(tuple(recipes))
    return Tensor(
        name=".".join([*([prefix] if prefix else []), "_".join(names)]),
        kind=Kind.WEIGHT,
        dims=recipe.shape,
        axes=(Axis.FUSED, *parts[0].axes[1:]),
        recipe=recipe,
    )
