"""A program: the list of operations that one step of a model is, with every tensor's type."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from tercet.base.errors import must
from tercet.program.inference import infer
from tercet.program.operations import Operation
from tercet.program.recipes import Recipe
from tercet.program.tensors import Kind, Tensor


class Program(Struct, frozen=True, kw_only=True):
    """What a step computes. `tensors` holds inputs, weights, states and all values, by name.

    Operations are in an order in which each reads only what exists; a state is read after the
    appends that come before. Made by `assemble` only.
    """

    name: str
    operations: tuple[Operation, ...]
    tensors: Mapping[str, Tensor]

    def of_kind(self, kind: Kind) -> tuple[Tensor, ...]:
        return tuple(tensor for tensor in self.tensors.values() if tensor.kind is kind)

    @property
    def weights(self) -> dict[str, Recipe]:
        """Recipe of each weight by the name that a device asks for."""
        return {
            tensor.name: tensor.recipe
            for tensor in self.tensors.values()
            if tensor.recipe is not None
        }

    @property
    def states(self) -> tuple[Tensor, ...]:
        return self.of_kind(Kind.STATE)

    def encoded(self) -> bytes:
        """All that it says, as bytes that differ where programs do."""
        return msgspec.msgpack.encode(self)

    def __str__(self) -> str:
        return "\n".join([f"program {self.name}", *(self._line(one) for one in self.operations)])

    def _line(self, operation: Operation) -> str:
        outputs = ", ".join(str(self.tensors[name]) for name in operation.outputs)
        attributes = ", ".join(
            f"{key}={getattr(operation.attributes, key)}"
            for key in type(operation.attributes).__struct_fields__
            if getattr(operation.attributes, key)
        )
        call = f"{operation.name}({', '.join(operation.inputs)})"
        line = f"{outputs} = {call}" if outputs else call
        return f"  {line}  {attributes}".rstrip()


def assemble(name: str, given: Sequence[Tensor], operations: Sequence[Operation]) -> Program:
    """A program whose values are inferred by replaying the operations over the given tensors."""
    tensors: dict[str, Tensor] = {}
    for tensor in given:
        if (wrong := _wrong(tensor)) is not None:
            must(False, f"{tensor} {wrong}")
        if tensor.name in tensors:
            must(False, f"{tensor.name} is given twice")
        tensors[tensor.name] = tensor
    for operation in operations:
        for source in operation.inputs:
            if source not in tensors:
                must(False, f"{operation.name} reads {source} before it exists")
        for output in infer(operation, tensors):
            if output.name in tensors:
                must(False, f"{output.name} is computed twice")
            tensors[output.name] = output
    return Program(name=name, operations=tuple(operations), tensors=tensors)


def _wrong(tensor: Tensor) -> str | None:
    """What contradicts itself in a given tensor."""
    if tensor.kind is Kind.VALUE:
        return "is given but not computed"
    if len(tensor.dims) != len(tensor.axes):
        return f"has axes {tensor.axes}"
    if (tensor.recipe is None) != (tensor.kind is not Kind.WEIGHT):
        return "and recipe"
    if tensor.recipe is not None and tensor.recipe.shape != tensor.dims:
        return f"from {tensor.recipe.shape}"
    return None
