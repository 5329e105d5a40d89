"""What a wire promises, and the words of it.

A wire carries one `messages.effects.Move` for each thread that calls it: it reads what the source
strip names, writes it to memory of this process, and returns or raises when no byte of the target
will change any more.

    fence before ── copy and sum ── fence after ── sum as expected? ──▶ Done
         └─────────────┴──────────────────┴───────────────┴──▶ WireFailure(end)

After `Done` the target holds what the source held, in the generations that were asked for; after a
failure its content is undefined. There is no write to memory of others, hence none to fence.

The seam for RDMA. A library such as NIXL registers memory, exchanges descriptors between agents,
and posts a transfer that is polled. It fits behind `carry` as it is, because all that it needs lies
in a move: `Region`s are what it registers (address, size), a memory's name stands for the metadata
of the remote agent that registered it, the pieces of both strips (`strips.pieces`) are the lists of
descriptors of a READ, and `carry` is: make the request, post it, poll until it is done or the
deadline passed. Fences and the layer clock are words of the remote region, read by the same READ
before and after the bytes; where no check is given, the sum of the source is asked of its host's
data server. `tests/integration/wires/test_wire_contract.py` is what such a wire has to pass.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from tercet.messages.effects import Move
from tercet.messages.events import MoveEnd


class Plane(StrEnum):
    """Which traffic a wire belongs to: planes do not share links on machines that have several."""

    SCALE_UP = "scale_up"
    """Within a host: memory that both can address."""
    SCALE_OUT = "scale_out"
    """Between hosts, for keys and values and weights."""
    STORAGE = "storage"
    """Disks, and what controls the others."""


class WireFailure(Exception):  # noqa: N818  a move's end, not an error of ours
    """The move ended otherwise than `MoveEnd.DONE`; the sentence is for logs."""

    def __init__(self, end: MoveEnd, sentence: str) -> None:
        super().__init__(f"{end}: {sentence}")
        self.end = end


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Words beside a memory that tell what it holds; they change under our eyes."""

    lives: int
    """Address of a u4 for each unit: the generation that it is in."""
    units: int
    clock: int = 0
    """Address of a u8, `(step << 16) | layers done`; 0: nothing is read before it is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A memory that is mapped into this process."""

    memory: str
    address: int
    size: int
    writable: bool = False
    """It is ours: a move may write to it."""
    fence: Fence | None = None
    """None: a strip with generations cannot be read from it."""


class Done(Struct, frozen=True, kw_only=True):
    """A move that ended well."""

    size: int
    duration_ns: int
    """From the request of the first byte to the arrival of the last; without the wait for a
    layer."""
    fold: int | None
    """Of the sums of the parts that arrived; None where nobody asked for a sum."""


class Wire(Protocol):
    """Called by many threads at once; blocks until the end, at the latest a little after the move's
    deadline (`time.monotonic_ns`; 0: the wire's own patience).
    """

    @property
    def name(self) -> str:
        """`shared`, `tcp` ...: what `Moved.wire` says and metrics are labelled with."""
        ...

    @property
    def plane(self) -> Plane: ...

    def reaches(self, move: Move) -> bool:
        """Whether this wire can carry from the source's memory to the target's, as far as it knows
        without asking.
        """
        ...

    def carry(self, move: Move) -> Done:
        """Carry it out; `WireFailure` says how it ended otherwise."""
        ...

    def close(self) -> None:
        """What is under way fails as GONE, and so does what comes later."""
        ...
