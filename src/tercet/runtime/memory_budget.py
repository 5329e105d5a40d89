"""How much memory KV arenas may take: from what the machine and its control group have left.

machine: MemAvailable   |======================================|
cgroup:  limit - used   |==========================|              the smaller one counts
kept for processes      |=====|
KV arenas                     |=========|                         fraction of the rest / replicas
"""

from dataclasses import dataclass
from pathlib import Path

from tercet.base.errors import Invalid
from tercet.base.ids import BLOCK_TOKENS
from tercet.runtime.control_groups import Group, groups

RESERVE_BYTES = 512 << 20
"""Left to the processes themselves, whatever the arenas take."""
ARENA_BYTES_MAX = 1 << 30
"""What an executor takes unasked at most, unless one whole context needs more."""
NUM_BLOCKS_MAX = 1 << 16
"""The same as a number of blocks (a million tokens), for models whose blocks are tiny."""
_UNLIMITED = 1 << 60


@dataclass(frozen=True)
class MemoryBudget:
    """The decision for one host."""

    free_bytes: int
    """What machine and control group have left."""
    arena_bytes: int
    """For each executor."""
    num_blocks: int
    """In each arena."""
    block_bytes: int
    asked: bool
    """Whether a person set the size."""

    @property
    def sentence(self) -> str:
        """One line for the log."""
        origin = "as set" if self.asked else f"of {_shown(self.free_bytes)} that are free"
        tokens = self.num_blocks * BLOCK_TOKENS
        return (
            f"KV memory: {_shown(self.arena_bytes)} an executor ({origin}), "
            f"{self.num_blocks} blocks, {tokens} tokens"
        )


def plan_memory(
    *,
    block_bytes: int,
    context_max: int,
    replicas: int,
    fraction: float,
    asked_bytes: int | None,
    free_bytes: int,
) -> MemoryBudget:
    """Share memory out; `Invalid` if not even one context fits, or if what was asked for is not
    there.
    """
    one_context = -(-context_max // BLOCK_TOKENS) * block_bytes
    if asked_bytes is None:
        share = int(max(0, free_bytes - RESERVE_BYTES) * fraction) // replicas
        most = min(ARENA_BYTES_MAX, NUM_BLOCKS_MAX * block_bytes)
        arena = min(share, max(most, one_context))
    else:
        arena = asked_bytes
    num_blocks = arena // block_bytes
    if num_blocks * block_bytes < one_context:
        found = "was set" if asked_bytes is not None else "can be had"
        raise Invalid(
            f"One context of {context_max} tokens needs {_shown(one_context)} of KV memory, but "
            f"{_shown(arena)} for each of {replicas} executors {found}; free memory, serve a "
            "shorter context or fewer replicas, or set kv_cache_memory_bytes.",
            code="no_memory",
            parameter="kv_cache_memory_bytes",
        )
    if arena * replicas > free_bytes:
        raise Invalid(
            f"{replicas} executors with {_shown(arena)} of KV memory each need more than the "
            f"{_shown(free_bytes)} that are free.",
            code="no_memory",
            parameter="kv_cache_memory_bytes",
        )
    return MemoryBudget(
        free_bytes=free_bytes,
        arena_bytes=num_blocks * block_bytes,
        num_blocks=num_blocks,
        block_bytes=block_bytes,
        asked=asked_bytes is not None,
    )


def free_memory(root: Path = Path("/")) -> int:
    """Give the bytes that this process and its children can still take."""
    return min(_available(root), cgroup_memory(root))


def _available(root: Path) -> int:
    """Give what the kernel could hand out without killing anyone."""
    lines = (root / "proc/meminfo").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024


def cgroup_memory(root: Path = Path("/")) -> int:
    """Give what the tightest control group above this process leaves; a huge number if none."""
    left = _UNLIMITED
    for group in groups("memory", root):
        left = min(left, _left(group))
    return left


def _left(group: Group) -> int:
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    limit, used = ("memory.max", "memory.current") if group.version == 2 else names
    try:
        most, taken = group.read(limit), int(group.read(used))
        cache = _inactive_files(group)
    except (OSError, ValueError):
        return _UNLIMITED
    if not most.isdigit():
        return _UNLIMITED
    return max(0, int(most) - taken + cache)


def _inactive_files(group: Group) -> int:
    """Give the page cache that the kernel gives back on demand."""
    for line in group.read("memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in {"inactive_file", "total_inactive_file"}:
            return int(value)
    return 0


def _shown(size: int) -> str:
    return f"{size / (1 << 30):.2f} GiB" if size >= 1 << 28 else f"{size / (1 << 20):.1f} MiB"
