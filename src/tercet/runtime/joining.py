"""The first thing that a process of the tree does: be named, be bound, learn what it is for."""

import os
from dataclasses import dataclass

from tercet.runtime.control import Begin, Channel, Held, channel_from
from tercet.runtime.process import end_if_orphaned, leave_signals_to_supervisor, name_process


@dataclass(frozen=True)
class Joined:
    """What a process learned; the descriptors are its own now."""

    begin: Begin
    control: Channel
    """Leads to the supervisor; its end is the tree's end."""
    descriptors: dict[str, int]
    held: tuple[tuple[Held, list[int]], ...]


def join_tree(descriptor: int, title: str) -> Joined:
    """Take part in the tree whose supervisor started this process; it ends with the supervisor."""
    name_process(title)
    leave_signals_to_supervisor()
    control = channel_from(descriptor)
    received = control.receive()
    if received is None or not isinstance(received[0], Begin):
        os._exit(0)
    begin, descriptors = received[0], received[1]
    end_if_orphaned(begin.supervisor)
    held: list[tuple[Held, list[int]]] = []
    for _ in range(begin.num_held):
        more = control.receive()
        if more is None or not isinstance(more[0], Held):
            os._exit(0)
        held.append((more[0], more[1]))
    named = dict(zip(begin.descriptors, descriptors, strict=True))
    return Joined(begin, control, named, tuple(held))
