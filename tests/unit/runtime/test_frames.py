import asyncio
import time
from collections.abc import Callable, Coroutine
from pipes import Pipe, turn
from typing import Any

import pytest

from tercet.runtime.frames import FrameLimits, Frames

LIMITS = FrameLimits(frame_bytes_max=100, unsent_bytes_max=1000)


def run(body: Callable[[Frames, Pipe, list[bytes]], Coroutine[Any, Any, None]]) -> None:
    async def scene() -> None:
        frames, pipe, got = Frames(LIMITS), Pipe(), []
        frames.on_frame = got.append
        frames.connection_made(pipe)
        await body(frames, pipe, got)

    asyncio.run(scene())


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "little") + payload


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 1000])
def test_frames_come_whole_however_the_stream_is_cut(step: int) -> None:
    async def body(frames: Frames, pipe: Pipe, got: list[bytes]) -> None:
        sent = [b"", b"a", b"bc" * 20, b"", b"last"]
        stream = b"".join(frame(payload) for payload in sent)
        for start in range(0, len(stream), step):
            frames.data_received(stream[start : start + step])
        assert got == sent

    run(body)


def test_all_frames_of_a_turn_leave_in_one_write() -> None:
    async def body(frames: Frames, pipe: Pipe, got: list[bytes]) -> None:
        for payload in (b"one", b"two", b"three"):
            frames.send(payload)
        assert pipe.written == []
        await turn()
        assert pipe.written == [frame(b"one") + frame(b"two") + frame(b"three")]

    run(body)


def test_a_frame_that_is_too_long_ends_the_connection() -> None:
    async def body(frames: Frames, pipe: Pipe, got: list[bytes]) -> None:
        frames.data_received(frame(b"x" * 100) + frame(b"y" * 101))
        assert got == [b"x" * 100]
        assert pipe.aborted

    run(body)


def test_a_long_frame_in_small_pieces_is_put_together_once() -> None:
    """What waits is not copied again with every piece: that would be 64 GiB here."""
    size, step = 8 << 20, 500

    async def body(frames: Frames, pipe: Pipe, got: list[bytes]) -> None:
        frames.frame_bytes_max = size
        stream = frame(bytes(size)) + frame(b"next")
        started = time.process_time()
        for start in range(0, len(stream), step):
            frames.data_received(stream[start : start + step])
        assert time.process_time() - started < 1.0
        assert got == [bytes(size), b"next"]

    run(body)


def test_the_bound_may_grow_between_two_frames() -> None:
    async def body(frames: Frames, pipe: Pipe, got: list[bytes]) -> None:
        def heard(payload: bytes) -> None:
            got.append(payload)
            frames.frame_bytes_max = 100

        frames.frame_bytes_max = 5
        frames.on_frame = heard
        frames.data_received(frame(b"hello") + frame(b"x" * 100))
        assert got == [b"hello", b"x" * 100]

    run(body)


def test_a_connection_that_is_given_up_before_it_is_made_ends_at_once() -> None:
    async def body(_: Frames, pipe: Pipe, got: list[bytes]) -> None:
        frames = Frames(LIMITS)
        frames.on_open = lambda: got.append(b"open")
        frames.abort()
        frames.connection_made(pipe)
        assert pipe.aborted
        assert got == []

    run(body)


def test_a_peer_that_does_not_read_is_cut_off() -> None:
    async def body(frames: Frames, pipe: Pipe, got: list[bytes]) -> None:
        pipe.unsent = 950
        frames.send(b"z" * 40)
        assert not pipe.aborted
        frames.send(b"z" * 40)
        assert pipe.aborted

    run(body)


def test_many_small_frames_of_one_turn_count_too() -> None:
    async def body(frames: Frames, pipe: Pipe, got: list[bytes]) -> None:
        for _ in range(30):
            frames.send(b"z" * 40)
        assert pipe.aborted

    run(body)


def test_nothing_is_taken_or_sent_after_the_end() -> None:
    async def body(frames: Frames, pipe: Pipe, got: list[bytes]) -> None:
        ends: list[int] = []
        frames.on_end = lambda: ends.append(1)
        frames.send(b"last words")
        frames.close()
        assert pipe.closed
        assert pipe.written == [frame(b"last words")]
        frames.send(b"too late")
        frames.data_received(frame(b"late"))
        await turn()
        assert len(pipe.written) == 1
        assert got == []
        frames.connection_lost(None)
        assert ends == [1]

    run(body)
