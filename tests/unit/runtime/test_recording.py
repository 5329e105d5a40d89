from pathlib import Path

import pytest

from tercet.base.errors import Invalid, InvariantBroken
from tercet.base.ids import Address, Epoch, ExecutorId
from tercet.messages.events import PeerGone, PeerJoined, Received, SpawnFailed, Woke
from tercet.messages.plan import StepCost
from tercet.messages.wire import ExecutorReady, Role, StartExecutor
from tercet.node_agent.config import NodeAgentConfig
from tercet.runtime.agent_machine import MakeNodeAgent
from tercet.runtime.codec import encode
from tercet.runtime.recording import Recorder, Recording, open_folder
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
    assert (again.num_events, again.difference, again.broke) == (len(EVENTS), "", "")
    assert again.num_effects >= 3
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


READY = Received(
    sender=Address("executor/3"),
    epoch=Epoch(2),
    message=ExecutorReady(
        executor=ExecutorId(3),
        epoch=Epoch(2),
        pid=1,
        role=Role.COLOCATED,
        model="m",
        cost=StepCost(base_ns=1.0, per_row_ns=1.0, per_logit_ns=1.0, per_pair_ns=1.0),
        num_blocks=1,
        context_max=1,
    ),
)
OUT_OF_TURN = SpawnFailed(executor=ExecutorId(3), reason="no room")
"""An executor that is ready cannot fail to be spawned: the machine stops."""


def test_a_machine_that_broke_down_breaks_down_again(tmp_path: Path) -> None:
    path = tmp_path / "agent.recording"
    recorder, machine = Recorder(path, encode(MAKE)), MAKE.make()
    for now, event in enumerate([*EVENTS, READY]):
        recorder.event(now, event)
        recorder.effects(machine.on(event, now))
    recorder.event(9, OUT_OF_TURN)
    with pytest.raises(InvariantBroken):
        machine.on(OUT_OF_TURN, 9)
    recorder.close()
    again = replay(path)
    assert again.difference == ""
    assert again.broke.startswith(f"event {len(EVENTS) + 2}, SpawnFailed at 9, breaks the machine")


def test_a_machine_that_breaks_down_only_now_is_a_difference(tmp_path: Path) -> None:
    path = tmp_path / "agent.recording"
    recorder, machine = Recorder(path, encode(MAKE)), MAKE.make()
    for event in (*EVENTS[:2], READY):
        recorder.event(0, event)
        recorder.effects(machine.on(event, 0))
    recorder.event(0, OUT_OF_TURN)
    recorder.effects([])
    recorder.close()
    again = replay(path)
    assert again.difference.startswith("event 4, SpawnFailed at 0, breaks the machine")
    assert again.broke == ""


def test_two_runs_do_not_mix(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    open_folder(folder)
    open_folder(folder)
    record(folder / "agent-local.1.recording")
    with pytest.raises(Invalid, match="name an empty or a new one"):
        open_folder(folder)
    with pytest.raises(Invalid, match="Nothing can be recorded in"):
        open_folder(folder / "agent-local.1.recording")


def test_other_versions_events_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "agent.recording"
    recorder = Recorder(path, encode(MAKE))
    recorder.close()
    path.write_bytes(path.read_bytes() + b"\x01\x00\x00\x00\xc0" + bytes(16))
    with pytest.raises(Invalid, match="holds no events of this version"):
        replay(path)


def test_entries_are_out_at_once_and_for_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "agent.recording"
    recorder = Recorder(path, encode(MAKE))
    recorder.event(5, EVENTS[0])
    assert list(Recording(path).entries()) == [(5, EVENTS[0], b"")]
    assert path.stat().st_mode & 0o077 == 0
    recorder.close()


def test_a_full_disk_ends_the_recording_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(tmp_path / "missing" / "agent.recording", encode(MAKE))
    recorder.event(5, EVENTS[0])
    recorder.effects([])
    recorder.close()
    assert "the recording agent.recording ends here: No such file" in caplog.text
