"""A weight as a recipe over checkpoint tensors: what to read and how to arrange it.

Recipes are values: equal recipes describe equal contents, so whoever stores evaluated weights
stores each distinct recipe once (tied embeddings share memory without a special case). Every
recipe knows its shape without reading anything, so that a checkpoint is checked before it is read.
"""

import math
from collections.abc import Callable, Container, Iterator
from typing import TypeVar, assert_never

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tercet.base.errors import InvariantBroken, must
from tercet.program.formats import Format
from tercet.program.rounding import symmetric8, to_bfloat16, to_q4_1, to_q8_0

Number = TypeVar("Number", bound=np.generic)


class Ckpt(Struct, frozen=True, tag=True):
    """A tensor of the checkpoint by its canonical (Hugging Face) name, with its expected shape."""

    name: str
    shape: tuple[int, ...]


class Concat(Struct, frozen=True, tag=True):
    """Parts one after another along the first axis."""

    parts: tuple["Recipe", ...]

    @property
    def shape(self) -> tuple[int, ...]:
        tails = [part.shape[1:] for part in self.parts]
        must(all(tail == tails[0] for tail in tails), f"parts of {self} do not fit together")
        return (sum(part.shape[0] for part in self.parts), *tails[0])


class Reshape(Struct, frozen=True, tag=True):
    """The same elements in the same order under another shape."""

    source: "Recipe"
    shape: tuple[int, ...]


class Slice(Struct, frozen=True, tag=True):
    """Entries start (inclusive) to stop (exclusive) of the first axis."""

    source: "Recipe"
    start: int
    stop: int

    @property
    def shape(self) -> tuple[int, ...]:
        must(0 <= self.start < self.stop <= self.source.shape[0], f"{self} is out of range")
        return (self.stop - self.start, *self.source.shape[1:])


class Interleave(Struct, frozen=True, tag=True):
    """Two parts of equal shape by turns, `RUN` entries of the first axis from each: what belongs
    together lies together, for kernels that gate one with the other.
    """

    first: "Recipe"
    second: "Recipe"

    @property
    def shape(self) -> tuple[int, ...]:
        rows, *tail = self.first.shape
        must(self.first.shape == self.second.shape and rows % RUN == 0, f"{self} does not fit")
        return (2 * rows, *tail)


RUN = 16
"""Neighbouring entries of one part in an interleaved weight: the lanes of a vector."""


class Quantized(Struct, frozen=True, tag=True):
    """The source's numbers as this format can say them; a row is an entry of the first axis."""

    source: "Recipe"
    format: Format

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape


Recipe = Ckpt | Concat | Reshape | Slice | Interleave | Quantized


def evaluate(
    recipe: Recipe, get: Callable[[str], NDArray[np.float32]], *, exact: Container[str] = ()
) -> NDArray[np.float32]:
    """The weight that the recipe describes, C-contiguous; `get` reads a checkpoint tensor.

    A quantized weight is given as the numbers that its stored form means. Tensors named in `exact`
    pass unchanged: the checkpoint stores them in this very format (`program.packing.exact_in`).

    The result may share memory with what `get` returned. `get` is asked for each source once per
    mention; shapes are the caller's to check first (`sources`), a contradiction stops the process.
    """
    match recipe:
        case Ckpt(name, shape):
            array = get(name)
            must(array.shape == shape, f"{name} has shape {array.shape}, recipe says {shape}")
            return np.ascontiguousarray(array)
        case Concat(parts):
            must(recipe.shape[0] > 0, f"{recipe} is empty")
            return np.concatenate([evaluate(part, get, exact=exact) for part in parts], axis=0)
        case Reshape(source, shape):
            must(math.prod(source.shape) == math.prod(shape), f"{recipe} changes the size")
            return evaluate(source, get, exact=exact).reshape(shape)
        case Slice(source, start, stop):
            return evaluate(source, get, exact=exact)[start:stop]
        case Interleave(first, second):
            return interleaved(*(evaluate(part, get, exact=exact) for part in (first, second)))
        case Quantized(source, form):
            values = evaluate(source, get, exact=exact)
            kept = isinstance(source, Ckpt) and source.name in exact
            return values if kept else quantized(values, form)
        case _:
            assert_never(recipe)


def quantized(values: NDArray[np.float32], form: Format) -> NDArray[np.float32]:
    """What values are once they are stored in the format: float32 of the same shape [N, *K]."""
    match form:
        case Format.BF16:
            return to_bfloat16(values)
        case Format.INT8:
            codes, scale = symmetric8(values.reshape(len(values), -1))
            return (codes * scale).reshape(values.shape)
        case Format.Q4_1:
            return to_q4_1(values)
        case Format.Q8_0:
            return to_q8_0(values)
        case Format.F32:
            return values
        case Format.Q4_0 | Format.Q4_K | Format.Q6_K:
            raise InvariantBroken(f"{form} is read from files that hold it, never made")
        case _:
            assert_never(form)


def interleaved(first: NDArray[Number], second: NDArray[Number]) -> NDArray[Number]:
    """Rows of both by turns, as `Interleave` says; any rows: values, blocks, scales."""
    both = np.stack([part.reshape(-1, RUN, *part.shape[1:]) for part in (first, second)], axis=1)
    return both.reshape(-1, *first.shape[1:])


def format_of(recipe: Recipe) -> Format:
    """How the weight is stored; parts of one weight are stored alike."""
    match recipe:
        case Ckpt():
            return Format.F32
        case Quantized(_, form):
            return form
        case Reshape(source, _) | Slice(source, _, _):
            return format_of(source)
        case Concat() | Interleave():
            forms = [format_of(part) for part in parts_of(recipe)]
            must(all(form is forms[0] for form in forms), f"parts of {recipe} are stored {forms}")
            return forms[0]
        case _:
            assert_never(recipe)


def parts_of(recipe: Concat | Interleave) -> tuple[Recipe, ...]:
    """What the recipe is put together from."""
    return recipe.parts if isinstance(recipe, Concat) else (recipe.first, recipe.second)


def sources(recipe: Recipe) -> Iterator[Ckpt]:
    """The checkpoint tensors that the recipe reads, in the order of reading."""
    match recipe:
        case Ckpt():
            yield recipe
        case Concat() | Interleave():
            for part in parts_of(recipe):
                yield from sources(part)
        case Reshape(source, _) | Slice(source, _, _) | Quantized(source, _):
            yield from sources(source)
        case _:
            assert_never(recipe)
