"""Rewrite: gate and up become one linear that gives the gated product.

The two halves never go through memory, where a device's kernels can gate what they have just
computed. Apply after `fuse`, whose joined linear it looks for.
"""

from collections import Counter

from tercet.program.operations import Glu, Linear, Operation
from tercet.program.program import Program, assemble
from tercet.program.recipes import RUN, Concat, Interleave
from tercet.program.tensors import Kind, Tensor


def gate(program: Program) -> Program:
    """The same computation, with every pair gated that is read by its `Glu` only."""
    readers = Counter(name for operation in program.operations for name in operation.inputs)
    pairs = {one.inputs for one in program.operations if isinstance(one.attributes, Glu)}
    given = {one.name: one for one in program.tensors.values() if one.kind is not Kind.VALUE}
    gated: dict[tuple[str, ...], Operation] = {}
    for operation in program.operations:
        weights = _interleaved(operation, program)
        alone = operation.outputs in pairs and all(readers[one] == 1 for one in operation.outputs)
        if weights and alone:
            gated[operation.outputs] = operation
            given |= {tensor.name: tensor for tensor in weights}
    operations = []
    for operation in program.operations:
        if operation.outputs in gated:
            continue
        pair = gated.get(operation.inputs) if isinstance(operation.attributes, Glu) else None
        operations.append(operation if pair is None else _join(pair, operation))
    return assemble(program.name, list(given.values()), operations)


def _interleaved(operation: Operation, program: Program) -> list[Tensor]:
    """Weight (and bias) of a linear of two equal halves, interleaved; empty for any other."""
    attributes = operation.attributes
    if not isinstance(attributes, Linear) or len(attributes.splits) != 2:
        return []
    tensors = []
    for name in operation.inputs[1:]:
        tensor = program.tensors[name]
        recipe = tensor.recipe
        if not isinstance(recipe, Concat) or len(recipe.parts) != 2:
            return []
        first, second = recipe.parts
        if first.shape != second.shape or first.shape[0] % RUN:
            return []
        tensors.append(
            Tensor(
                name=name,
                kind=Kind.WEIGHT,
                dims=tensor.dims,
                axes=tensor.axes,
                recipe=Interleave(first, second),
            )
        )
    return tensors


def _join(pair: Operation, glu: Operation) -> Operation:
    bias = isinstance(pair.attributes, Linear) and pair.attributes.bias
    return Operation(
        attributes=Linear(bias=bias, gated=True),
        inputs=pair.inputs,
        outputs=glu.outputs,
        group=pair.group,
    )
