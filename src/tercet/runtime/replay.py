"""Runs a recording through a fresh machine: the same events must bring the same effects."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import msgpack

from tercet.base.errors import Invalid, InvariantBroken
from tercet.runtime.agent_machine import MakeNodeAgent
from tercet.runtime.cluster_machine import MakeClusterManager
from tercet.runtime.codec import UNREADABLE, Malformed
from tercet.runtime.executor_machine import MakeTaskExecutor
from tercet.runtime.job_machine import MakeJobExecutor
from tercet.runtime.recording import Recording, digest

Construction = MakeJobExecutor | MakeTaskExecutor | MakeNodeAgent | MakeClusterManager
_decoder: msgpack.Decoder[Any] = msgpack.Decoder(Construction)


@dataclass(frozen=True)
class Replayed:
    """How a replay went."""

    construction: Construction
    num_events: int
    """So many were given to the machine."""
    num_effects: int
    """So many it answered."""
    difference: str
    """The first event that has other effects now, and those; empty: all are the same."""
    broke: str = ""
    """How the machine broke down over the last event, as it did when it was recorded."""


def replay(path: Path) -> Replayed:
    """Give every recorded event to a machine made as the recorded one was; `Invalid` if the file
    is no recording.
    """
    recording = Recording(path)
    try:
        construction: Construction = _decoder.decode(recording.construction)
    except UNREADABLE as error:
        raise Invalid(f"{path} records no machine of this version: {error}") from error
    try:
        return _replay(recording, construction)
    except Malformed as error:
        raise Invalid(f"{path} holds no events of this version: {error}") from error


def _replay(recording: Recording, construction: Construction) -> Replayed:
    machine: Any = construction.make()
    num_events = num_effects = 0
    for now, event, expected in recording.entries():
        num_events += 1
        story = f"event {num_events}, {type(event).__name__} at {now},"
        try:
            effects = machine.on(event, now)
        except InvariantBroken as broken:
            told = f"{story} breaks the machine: {broken}"
            if expected:
                return Replayed(construction, num_events, num_effects, told)
            return Replayed(construction, num_events, num_effects, "", told)
        num_effects += len(effects)
        if expected and digest(effects) != expected:
            return Replayed(construction, num_events, num_effects, f"{story} brings {effects!r}")
    try:
        machine.check()
    except InvariantBroken as broken:
        told = f"after {num_events} events it is not sound: {broken}"
        return Replayed(construction, num_events, num_effects, told)
    return Replayed(construction, num_events, num_effects, "")
