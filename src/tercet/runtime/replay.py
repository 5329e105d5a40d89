"""Runs a recording through a fresh machine: the same events must bring the same effects."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import msgpack

from tercet.base.errors import Invalid
from tercet.runtime.agent_machine import MakeNodeAgent
from tercet.runtime.executor_machine import MakeTaskExecutor
from tercet.runtime.front_machines import MakeClusterManager, MakeJobExecutor
from tercet.runtime.recording import Recording, digest

Construction = MakeJobExecutor | MakeTaskExecutor | MakeNodeAgent | MakeClusterManager
_decoder: msgpack.Decoder[Any] = msgpack.Decoder(Construction)


@dataclass(frozen=True)
class Replayed:
    """How a replay went."""

    construction: Construction
    num_events: int
    """So many were given to the machine."""
    difference: str
    """The first event that has other effects now, and those; empty: all are the same."""


def replay(path: Path) -> Replayed:
    """Give every recorded event to a machine made as the recorded one was; `Invalid` if the file
    is no recording.
    """
    recording = Recording(path)
    try:
        construction: Construction = _decoder.decode(recording.construction)
    except msgspec.MsgspecError as error:
        raise Invalid(f"{path} records no machine of this version: {error}") from error
    machine: Any = construction.make()
    count = 0
    for now, event, expected in recording.entries():
        effects = machine.on(event, now)
        count += 1
        if digest(effects) != expected:
            story = f"event {count}, {type(event).__name__} at {now}, brings {effects!r}"
            return Replayed(construction, count, story)
    machine.check()
    return Replayed(construction, count, "")
