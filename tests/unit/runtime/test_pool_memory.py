"""The memories of a share: a disk that cannot be had is told in a sentence; the labels of one are
told in pieces, and the loop turns in between.
"""

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tercet.base.errors import Invalid
from tercet.messages.events import MoveEnd, SlabScanned
from tercet.pool.config import PoolConfig
from tercet.pool.disk import HEAD
from tercet.runtime.pool_memory import READ_BYTES, SCAN_BYTES, PoolMemory
from tercet.wires.contract import WireFailure


class Slab:
    """Gives pieces one by one; `reads` says how many were asked for."""

    def __init__(self, pieces: list[bytes], *, breaks: bool = False) -> None:
        self.pieces = pieces
        self.breaks = breaks
        self.reads = 0

    def notes(self, _at: int, _size: int, step: int) -> Iterator[bytes]:
        assert step == READ_BYTES
        for piece in self.pieces:
            self.reads += 1
            yield piece
        if self.breaks:
            raise WireFailure(MoveEnd.GONE, "as told")


def scanned(slab: Slab) -> list[tuple[SlabScanned, int, int]]:
    """What is told, and with each how often the loop had turned and how much was read by then."""
    memory = PoolMemory(PoolConfig(), "a")
    memory._slab = slab  # type: ignore[assignment]
    told: list[tuple[SlabScanned, int, int]] = []
    turns = 0

    async def main() -> None:
        def turn() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(turn)

        loop = asyncio.get_running_loop()
        loop.call_soon(turn)
        await memory.scan(lambda event: told.append((event, turns, slab.reads)))

    asyncio.run(main())
    return told


def filled(number: int) -> bytes:
    return bytes([number]) * READ_BYTES


def test_the_loop_turns_between_pieces_and_nothing_is_read_ahead() -> None:
    slab = Slab([filled(1), filled(2), filled(3)])
    told = scanned(slab)
    each = READ_BYTES // SCAN_BYTES
    assert len(told) == 3 * each + 1
    assert all(before[1] < after[1] for before, after in pairwise(told[:-1]))
    assert [reads for _, _, reads in told[:-1]] == [1] * each + [2] * each + [3] * each
    assert b"".join(event.labels for event, *_ in told) == b"".join(slab.pieces)
    assert all(len(event.labels) <= SCAN_BYTES for event, *_ in told)
    assert [event.last for event, *_ in told] == [False] * (len(told) - 1) + [True]


def test_where_no_label_was_ever_written_nothing_is_told() -> None:
    partly = bytes(SCAN_BYTES * 3) + b"x" * SCAN_BYTES
    told = scanned(Slab([bytes(READ_BYTES)] * 5 + [partly, bytes(READ_BYTES)]))
    assert [event.labels for event, *_ in told] == [b"x" * SCAN_BYTES, b""]


def test_the_last_word_is_told_of_a_disk_that_breaks_meanwhile() -> None:
    told = scanned(Slab([filled(1)], breaks=True))
    last: Any = told[-1][0]
    assert last.last
    assert len(told) == READ_BYTES // SCAN_BYTES + 1


def config_of(path: Path) -> PoolConfig:
    return PoolConfig(dram_bytes=1 << 20, disk_path=str(path), disk_bytes=1 << 20)


@pytest.mark.parametrize("name", ["photographs", "photographs.notes"])
@pytest.mark.parametrize("content", [b"of somebody", b"tercet poodle", bytes(8192)])
def test_a_path_that_leads_to_another_file_is_refused(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path, other = tmp_path / "photographs", tmp_path / name
    other.write_bytes(content)
    with pytest.raises(Invalid) as refused:
        PoolMemory(config_of(path), "a").open()
    assert refused.value.sentence == (
        f"The pool's disk {path} of 1048576 bytes cannot be had: {other} holds something else, "
        "and is left as it is."
    )
    assert refused.value.parameter == "pool.disk_path"
    assert other.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"tercet pool 0\n" + b"x" * 9000])
def test_an_empty_file_and_a_former_versions_are_begun_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "slab"
    path.write_bytes(content)
    PoolMemory(config_of(path), "a").open()
    found = path.read_bytes()
    assert found.startswith(HEAD)
    assert len(found) > 1_000_000
    assert not any(found[len(HEAD) :])
