"""The progress page: how far an executor is, in memory that outlives its hanging.

The executor writes, its node agent reads, across processes and without a call into either: a
stopped or spinning executor can't answer, yet its page still says since when it computes what.

    0        8         16        24             32             40         48            64
    ├ version ┼─ steps ─┼ started ┼ predicted ns ┼── has work ──┼ loop beat ┼── zero ─────┤
      u8        u8        i8        i8             i8             i8

Two threads of the executor write (engine: the step; event loop: the beat and the work), so there
are two records of one shape, each with one writer: the engine's at 0, the loop's at 64. `version`
is odd while its record is being written (a seqlock), and a reader that sees it odd or changed
tries again. Values are native and aligned: each is one store. Times are `CLOCK_MONOTONIC`
nanoseconds, which all processes of a host share.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

PROGRESS_BYTES = 128
_VERSION = struct.Struct("@Q")
_STEP = struct.Struct("@Qqq")
_LOOP = struct.Struct("@qq")
_STEP_OFFSET, _LOOP_OFFSET = 0, 64
_STEP_FIELDS = 8
_LOOP_FIELDS = 32
_TRIES = 1000

Buffer = memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One consistent sample; the fields of `messages.events.ProgressSeen`."""

    steps: int
    """Steps completed."""
    step_started: int
    """When the running step began; 0 when none runs."""
    step_predicted_ns: int
    has_work: bool
    loop_beat: int
    """The last turn of the event loop."""


class ProgressWriter:
    """The executor's side. `step_*` belong to the engine thread, `beat` to the loop's."""

    def __init__(self, page: Buffer) -> None:
        self._page = page
        self._steps = 0
        self._versions = {_STEP_OFFSET: 0, _LOOP_OFFSET: 0}

    def step_started(self, now: int, predicted_ns: int) -> None:
        """A step runs since `now`."""
        record = _STEP.pack(self._steps, now, predicted_ns)
        self._write(_STEP_OFFSET, _STEP_FIELDS, record)

    def step_done(self) -> None:
        """One step more is completed, none runs."""
        self._steps += 1
        self._write(_STEP_OFFSET, _STEP_FIELDS, _STEP.pack(self._steps, 0, 0))

    def beat(self, now: int, *, has_work: bool) -> None:
        """The event loop turned at `now`; it has, or has no, steps to run."""
        self._write(_LOOP_OFFSET, _LOOP_FIELDS, _LOOP.pack(int(has_work), now))

    def _write(self, offset: int, fields: int, record: bytes) -> None:
        version = self._versions[offset]
        _VERSION.pack_into(self._page, offset, version + 1)
        self._page[offset + fields : offset + fields + len(record)] = record
        self._versions[offset] = version + 2
        _VERSION.pack_into(self._page, offset, version + 2)


class ProgressReader:
    """The agent's side."""

    def __init__(self, page: Buffer) -> None:
        self._page = page

    def read(self) -> Progress | None:
        """A sample, or None where the writer stands in the middle of writing (it was stopped or
        killed there): a later sample may be whole, and the former one still holds.
        """
        step = self._record(_STEP_OFFSET, lambda at: _STEP.unpack_from(self._page, at + 8))
        loop = self._record(_LOOP_OFFSET, lambda at: _LOOP.unpack_from(self._page, at + 32))
        if step is None or loop is None:
            return None
        return Progress(
            steps=step[0],
            step_started=step[1],
            step_predicted_ns=step[2],
            has_work=bool(loop[0]),
            loop_beat=loop[1],
        )

    def _record(
        self, offset: int, unpack: Callable[[int], tuple[int, ...]]
    ) -> tuple[int, ...] | None:
        for _ in range(_TRIES):
            before = _VERSION.unpack_from(self._page, offset)[0]
            if before % 2:
                continue
            record = unpack(offset)
            if _VERSION.unpack_from(self._page, offset)[0] == before:
                return record
        return None
