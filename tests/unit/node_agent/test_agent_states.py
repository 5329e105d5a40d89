"""The life of an executor on its host, row by row."""

import re

import pytest
from agent_cases import SECOND, Host, kinds, ready, told

from tercet.base.errors import Invalid, InvariantBroken
from tercet.base.ids import Address, Epoch, ExecutorId
from tercet.messages.effects import Forget, Kill, Spawn
from tercet.messages.events import Adopted, PeerGone, PeerJoined, ProcessExited, SpawnFailed, Woke
from tercet.messages.wire import AgentReport, ExecutorGone
from tercet.node_agent import states
from tercet.node_agent.config import NodeAgentConfig
from tercet.node_agent.states import EXECUTOR_STEPS, ExecutorEvent, ExecutorState, next_state

ONE = ExecutorId(1)


@pytest.mark.parametrize("state", ExecutorState)
@pytest.mark.parametrize("event", ExecutorEvent)
def test_every_pair_is_a_row_or_a_story(state: ExecutorState, event: ExecutorEvent) -> None:
    if (state, event) in EXECUTOR_STEPS:
        assert next_state(state, event, ONE) is EXECUTOR_STEPS[state, event]
    else:
        with pytest.raises(InvariantBroken, match=f"executor 1 is {state}: it cannot take"):
            next_state(state, event, ONE)


def test_the_picture_draws_what_exists() -> None:
    drawn = {*re.findall(r"[A-Z]{3,}(?:_[A-Z]+)?", str(states.__doc__))} - {"START"}
    assert {*ExecutorEvent.__members__} <= drawn
    assert drawn <= {*ExecutorEvent.__members__, *ExecutorState.__members__}


def test_a_good_life() -> None:
    host = Host()
    effects = host.start(1)
    assert Spawn(executor=ONE, role=ready(1).role, model="m", cause="executor/1") in effects
    assert host.state(1) == "spawning"
    assert host.spawned(1) == []
    assert host.state(1) == "starting"
    effects = host.ready(1)
    assert told(effects) == [ready(1)]
    assert host.state(1) == "ready"
    assert told(host.ready(1)) == [ready(1)], "repeated: relayed again"
    effects = host.stop(1)
    assert kinds(effects) == ["Kill", "Wake"]
    assert told(host.ready(1)) == []
    effects = host.on(ProcessExited(executor=ONE, reason="signal 9"))
    assert told(effects) == [ExecutorGone(executor=ONE, reason="not wanted")]
    assert Forget(executor=ONE, cause="executor/1") in effects
    assert host.state(1) is None


def test_an_executor_that_dies_by_itself_is_told_with_the_reason() -> None:
    host = Host()
    host.serving(1)
    effects = host.on(ProcessExited(executor=ONE, reason="signal 11"))
    assert told(effects) == [ExecutorGone(executor=ONE, reason="signal 11")]


def test_a_start_that_fails_is_gone_and_its_memory_given_back() -> None:
    host = Host()
    host.start(1)
    effects = host.on(SpawnFailed(executor=ONE, reason="no memory"))
    reason = "it could not be spawned: no memory"
    assert told(effects) == [ExecutorGone(executor=ONE, reason=reason)]
    assert Forget(executor=ONE, cause="executor/1") in effects


def test_a_stop_before_there_is_a_process_waits_for_it() -> None:
    host = Host()
    host.start(1)
    assert host.stop(1) == []
    assert host.state(1) == "doomed"
    assert kinds(host.spawned(1)) == ["Kill", "Wake"]
    assert host.state(1) == "killed"


def test_a_kill_without_an_exit_is_repeated() -> None:
    host = Host(NodeAgentConfig(kill_retry_s=2.0))
    host.serving(1)
    host.stop(1)
    host.now += 2 * SECOND
    effects = host.on(Woke(key="kill/1"))
    assert [e for e in effects if isinstance(e, Kill)]
    host.on(ProcessExited(executor=ONE, reason="signal 9"))
    assert host.on(Woke(key="kill/1")) == []


def test_a_start_has_a_time_limit_that_only_counts_time_awake() -> None:
    host = Host(NodeAgentConfig(start_timeout_s=10.0))
    host.start(1)
    host.spawned(1)
    host.now += 3600 * SECOND  # the host slept
    assert kinds(host.on(Woke(key="start/1"))) == ["Wake"]
    for _ in range(7):
        host.now += SECOND
        assert kinds(host.on(Woke(key="start/1"))) == ["Wake"]
    host.now += SECOND
    effects = host.on(Woke(key="start/1"))
    assert kinds(effects) == ["Kill", "Wake"]
    assert isinstance(effects[0], Kill)
    assert effects[0].reason == "it was not ready within 10 s"


def test_orders_that_come_twice_or_late_do_no_harm() -> None:
    host = Host()
    host.start(1)
    assert host.start(1) == []
    assert told(host.stop(7)) == [ExecutorGone(executor=ExecutorId(7), reason="unknown here")]
    host.spawned(1)
    host.on(ProcessExited(executor=ONE, reason="exit 1"))
    assert told(host.start(1)) == [ExecutorGone(executor=ONE, reason="exit 1")]
    assert host.ready(1) == [], "late words do not raise the dead"
    assert kinds(host.spawned(9)) == ["Kill"], "nobody asked for it"
    assert kinds(host.on(ProcessExited(executor=ExecutorId(9), reason=""))) == ["Forget"]


def test_an_executor_speaks_for_itself_only() -> None:
    host = Host()
    host.start(1)
    host.spawned(1)
    assert host.ready(1, sender="executor/2") == []


def test_a_report_tells_all_whenever_the_cluster_manager_joins() -> None:
    host = Host()
    joined = PeerJoined(peer=Address("cluster"), epoch=Epoch(1))
    assert told(host.on(joined)) == [
        AgentReport(agent=Address("agent/local"), starting=(), ready=(), next_executor=0)
    ]
    host.serving(4)
    host.start(5)
    host.start(6)
    host.spawned(6)
    host.start(8)
    host.stop(8)
    host.on(PeerGone(peer=Address("cluster"), epoch=Epoch(1)))
    (report,) = told(host.on(joined))
    assert isinstance(report, AgentReport)
    assert report.starting == (5, 6)
    assert report.ready == (ready(4),)
    assert report.next_executor == 9


@pytest.mark.parametrize("first", ["adopted", "ready"])
def test_a_restarted_agent_takes_its_executors_on(first: str) -> None:
    host = Host()
    adopted = Adopted(executor=ONE, pid=77)
    if first == "adopted":
        host.on(adopted)
        assert host.state(1) == "starting"
        assert told(host.ready(1)) == [ready(1)]
    else:
        assert told(host.ready(1)) == [ready(1)]
        host.on(adopted)
    assert host.state(1) == "ready"
    assert kinds(host.stop(1)) == ["Kill", "Wake"]


def test_an_adopted_executor_that_never_registers_is_killed() -> None:
    host = Host(NodeAgentConfig(start_timeout_s=2.0))
    host.on(Adopted(executor=ONE, pid=77))
    for _ in range(2):
        host.now += SECOND
        effects = host.on(Woke(key="start/1"))
    assert kinds(effects) == ["Kill", "Wake"]


def test_an_agent_for_another_message_or_peer_does_nothing() -> None:
    host = Host()
    assert host.on(PeerJoined(peer=Address("executor/1"), epoch=Epoch(1))) == []
    assert host.on(Woke(key="start/3")) == []
    assert host.on(Woke(key="anything")) == []


@pytest.mark.parametrize(
    ("name", "value"), [("progress_floor_s", 0.0), ("progress_factor", -1.0), ("kill_retry_s", 0.0)]
)
def test_a_bad_setting_is_named(name: str, value: float) -> None:
    with pytest.raises(Invalid, match=f"{name} is {value}; expected"):
        NodeAgentConfig(**{name: value})  # type: ignore[arg-type]
