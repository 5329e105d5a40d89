"""Rewrite: a step tells, layer by layer, that keys and values of a layer are whole.

So a layer can be copied by others while the next ones are computed. Apply last, before a device
compiles the program: stored weights and what results depend on are those of the program without.
"""

from tercet.program.operations import Append, Operation, Signal
from tercet.program.program import Program, assemble
from tercet.program.tensors import Kind, RowGroup


def signal(program: Program) -> Program:
    """The same computation, with a signal behind the last operation that appends to each state."""
    last = {
        operation.inputs[0]: place
        for place, operation in enumerate(program.operations)
        if isinstance(operation.attributes, Append)
    }
    layers = {state.name: layer for layer, state in enumerate(program.states, 1)}
    operations: list[Operation] = []
    for place, operation in enumerate(program.operations):
        operations.append(operation)
        state = operation.inputs[0]
        if last.get(state) == place:
            operations.append(
                Operation(
                    attributes=Signal(layers[state]),
                    inputs=(state,),
                    outputs=(),
                    group=RowGroup.STEP,
                )
            )
    given = [one for one in program.tensors.values() if one.kind is not Kind.VALUE]
    return assemble(program.name, given, operations)
