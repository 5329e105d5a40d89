from pathlib import Path

import pytest

from tercet.base.errors import Invalid
from tercet.base.ids import Address, Epoch, ExecutorId
from tercet.messages.events import PeerGone, PeerJoined, Received, Woke
from tercet.messages.wire import Role, StartExecutor
from tercet.node_agent.config import NodeAgentConfig
from tercet.runtime.agent_machine import MakeNodeAgent
from tercet.runtime.codec import encode
from tercet.runtime.recording import Recorder, Recording
from tercet.runtime.replay import replay

CLUSTER = Address("cluster")
MAKE = MakeNodeAgent(config=NodeAgentConfig(), address=Address("agent/local"), next_executor=3)
EVENTS = [
    PeerJoined(peer=CLUSTER, epoch=Epoch(1)),
    Received(
        sender=CLUSTER,
        epoch=Epoch(1),
        message=StartExecutor(executor=ExecutorId(3), role=Role.COLOCATED, model="m"),
    ),
    Woke(key="start/3"),
    PeerGone(peer=CLUSTER, epoch=Epoch(1)),
]


def record(path: Path) -> None:
    recorder, machine = Recorder(path, encode(MAKE)), MAKE.make()
    for now, event in enumerate(EVENTS):
        recorder.event(now, event)
        recorder.effects(machine.on(event, now))
    recorder.close()


def test_a_recording_replays_to_the_same_effects(tmp_path: Path) -> None:
    path = tmp_path / "agent.recording"
    record(path)
    again = replay(path)
    assert again.construction == MAKE
    assert (again.num_events, again.difference) == (len(EVENTS), "")
    assert [event for _, event, _ in Recording(path).entries()] == EVENTS


@pytest.mark.parametrize("lost", [1, 8, 17, 30])
def test_an_end_that_is_cut_off_is_left_out(tmp_path: Path, lost: int) -> None:
    """The recording of a process that was killed."""
    path = tmp_path / "agent.recording"
    record(path)
    path.write_bytes(path.read_bytes()[:-lost])
    again = replay(path)
    assert again.difference == ""
    assert again.num_events < len(EVENTS)


def test_other_effects_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "agent.recording"
    record(path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert f"event {len(EVENTS)}, PeerGone" in replay(path).difference


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"something else")
    with pytest.raises(Invalid, match="is not a recording"):
        replay(path)
