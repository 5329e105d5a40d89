"""Runs a recording through a fresh machine: the same events must bring the same effects."""

from dataclasses import dataclass
from pathlib import Path

from tercet.runtime.machines import make_machine, read_construction
from tercet.runtime.recording import Recording, digest


@dataclass(frozen=True)
class Replayed:
    """How a replay went."""

    num_events: int
    first_difference: int | None
    """Index of the first event whose effects differ; None: all are the same."""
    story: str = ""
    """That event, and what it brings about now."""


def replay(path: Path) -> Replayed:
    """Give every recorded event to a machine made as the recorded one was."""
    recording = Recording(path)
    machine = make_machine(read_construction(recording.construction))
    count = 0
    for now, event, expected in recording.entries():
        effects = machine.on(event, now)
        if digest(effects) != expected:
            return Replayed(count, count, f"{type(event).__name__} at {now} brings {effects!r}")
        count += 1
    machine.check()
    return Replayed(count, None)
