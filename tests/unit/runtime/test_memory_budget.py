from pathlib import Path

import pytest

from tercet.base.errors import Invalid
from tercet.runtime.memory_budget import (
    ARENA_BYTES_MAX,
    NUM_BLOCKS_MAX,
    RESERVE_BYTES,
    cgroup_memory,
    plan_memory,
)

GIB = 1 << 30
BLOCK = 737_280


def plan(
    *, free: int = 16 * GIB, replicas: int = 1, asked: int | None = None, context: int = 8192
) -> int:
    return plan_memory(
        block_bytes=BLOCK,
        context_max=context,
        replicas=replicas,
        fraction=0.5,
        asked_bytes=asked,
        free_bytes=free,
    ).num_blocks


def test_unasked_it_takes_a_bounded_arena() -> None:
    assert plan() == ARENA_BYTES_MAX // BLOCK


def test_tiny_blocks_are_bounded_in_number() -> None:
    budget = plan_memory(
        block_bytes=4, context_max=64, replicas=1, fraction=0.5, asked_bytes=None, free_bytes=GIB
    )
    assert budget.num_blocks == NUM_BLOCKS_MAX


def test_one_whole_context_may_take_more() -> None:
    assert plan(context=131_072) == 131_072 // 16


def test_executors_share_the_fraction_of_what_is_left() -> None:
    free = RESERVE_BYTES + 3 * GIB
    assert plan(free=free, replicas=2, context=1024) == (3 * GIB // 4) // BLOCK


def test_what_was_asked_for_is_kept() -> None:
    assert plan(asked=600 << 20) == (600 << 20) // BLOCK


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"asked": 10 << 20}, "One context of 8192 tokens needs"),
        ({"free": RESERVE_BYTES}, "can be had"),
        ({"asked": 9 * GIB, "replicas": 2}, "more than the 16.00 GiB"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(numbers: dict[str, int], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        plan(**numbers)


def write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def test_the_tightest_group_above_counts_in_version_2(tmp_path: Path) -> None:
    write(tmp_path / "proc/self", {"cgroup": "0::/a/b\n"})
    mount = tmp_path / "sys/fs/cgroup"
    stat = {"memory.stat": "anon 5\ninactive_file 100\n"}
    write(mount / "a", {"memory.max": "5000\n", "memory.current": "1000\n", **stat})
    write(mount / "a/b", {"memory.max": "max\n", "memory.current": "700\n", **stat})
    assert cgroup_memory(tmp_path) == 4100


def test_version_1_is_read_too(tmp_path: Path) -> None:
    write(tmp_path / "proc/self", {"cgroup": "3:cpuset:/\n4:memory:/c\n0::/\n"})
    write(
        tmp_path / "sys/fs/cgroup/memory/c",
        {
            "memory.limit_in_bytes": "8000\n",
            "memory.usage_in_bytes": "6000\n",
            "memory.stat": "total_inactive_file 500\n",
        },
    )
    assert cgroup_memory(tmp_path) == 2500


def test_no_group_is_no_limit(tmp_path: Path) -> None:
    assert cgroup_memory(tmp_path) >= 1 << 60
