"""A weight as a recipe over checkpoint tensors: what to read and how to arrange it.

Recipes are values: equal recipes describe equal contents, so whoever stores evaluated weights
stores each distinct recipe once (tied embeddings share memory without a special case). Every
recipe knows its shape without reading anything, so that a checkpoint is checked before it is read.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from tercet.base.errors import must


@dataclass(frozen=True, slots=True)
class Ckpt:
    """A tensor of the checkpoint by its canonical (Hugging Face) name, with its expected shape."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Concat:
    """Parts one after another along the first axis."""

    parts: tuple["Recipe", ...]

    @property
    def shape(self) -> tuple[int, ...]:
        tails = [part.shape[1:] for part in self.parts]
        must(all(tail == tails[0] for tail in tails), f"parts of {self} do not fit together")
        return (sum(part.shape[0] for part in self.parts), *tails[0])


@dataclass(frozen=True, slots=True)
class Reshape:
    """The same elements in the same order under another shape."""

    source: "Recipe"
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """Entries start (inclusive) to stop (exclusive) of the first axis."""

    source: "Recipe"
    start: int
    stop: int

    @property
    def shape(self) -> tuple[int, ...]:
        must(0 <= self.start < self.stop <= self.source.shape[0], f"{self} is out of range")
        return (self.stop - self.start, *self.source.shape[1:])


Recipe = Ckpt | Concat | Reshape | Slice


def evaluate(recipe: Recipe, get: Callable[[str], NDArray[np.float32]]) -> NDArray[np.float32]:
    """The weight that the recipe describes, C-contiguous; `get` reads a checkpoint tensor.

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
            return np.concatenate([evaluate(part, get) for part in parts], axis=0)
        case Reshape(source, shape):
            must(math.prod(source.shape) == math.prod(shape), f"{recipe} changes the size")
            return evaluate(source, get).reshape(shape)
        case Slice(source, start, stop):
            return evaluate(source, get)[start:stop]
        case _:
            assert_never(recipe)


def sources(recipe: Recipe) -> Iterator[Ckpt]:
    """The checkpoint tensors that the recipe reads, in the order of reading."""
    match recipe:
        case Ckpt():
            yield recipe
        case Concat(parts):
            for part in parts:
                yield from sources(part)
        case Reshape(source, _) | Slice(source, _, _):
            yield from sources(source)
        case _:
            assert_never(recipe)
