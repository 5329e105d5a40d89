"""The zygote: has imported all that an executor needs, runs one thread, and forks executors.

    agent --Fork(birth channel, progress page)--> zygote
                                                    fork --> middle --> fork --> executor
                                                             exits               the supervisor's

It blocks on its channel and answers nothing: the birth channel tells how a birth went, also when
the zygote dies over it.
"""

import gc
import os
import sys

import tercet.devices.cost.device
import tercet.devices.cpu.device
import tercet.devices.reference.device
import tercet.models.image.layout  # noqa: F401  loaded before the fork, shared after it
from tercet.base.errors import must
from tercet.runtime.control import Begin, Channel, Fork, channel_from
from tercet.runtime.executor import Parentage, live
from tercet.runtime.joining import join_tree
from tercet.runtime.process import num_threads


def main(descriptor: int) -> None:
    """Fork whatever the agent asks for, until the supervisor ends."""
    joined = join_tree(descriptor, "tercet: zygote")
    gc.collect()
    gc.freeze()
    serve(joined.begin, channel_from(joined.descriptors["agent"]), joined.control)


def serve(begin: Begin, agent: Channel, control: Channel) -> None:
    """Answer wishes one after another."""
    while (received := agent.receive()) is not None:
        note, descriptors = received
        must(isinstance(note, Fork), f"a zygote is asked for {type(note).__name__}")
        if isinstance(note, Fork):
            must(num_threads() == 1, "a zygote with threads cannot fork safely")
            _fork(begin, note, descriptors, inherited=(agent, control))
        for end in descriptors:
            os.close(end)


def _fork(
    begin: Begin, wish: Fork, descriptors: list[int], *, inherited: tuple[Channel, Channel]
) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    own = os.getpid()
    if os.fork():
        os._exit(0)
    for channel in inherited:
        channel.close()
    birth, progress = descriptors
    live(
        begin,
        wish,
        birth=channel_from(birth),
        progress=progress,
        parentage=Parentage(middle=own, supervisor=begin.supervisor),
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
