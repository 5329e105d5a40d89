"""Progress is health (I5): who is killed, and who must not be.

vllm#39863 and Fastllm-proxy#19 are what this is against: an engine that is dead or frozen while
everything else says that it is well.
"""

from collections.abc import Callable

from agent_cases import SECOND, Host, kinds

from tercet.base.ids import ExecutorId
from tercet.messages.effects import Kill
from tercet.messages.events import Adopted
from tercet.node_agent.config import NodeAgentConfig

TENTH = SECOND // 10
CONFIG = NodeAgentConfig(progress_floor_s=5.0, progress_factor=8.0, sample_gap_s_max=1.0)


def watch(host: Host, seconds: float, see: Callable[[int], dict[str, int]]) -> Kill | None:
    """Sample ten times a second; the first kill ends it."""
    for _ in range(int(seconds * 10)):
        host.now += TENTH
        effects = host.sample(0, **see(host.now))
        if effects:
            assert kinds(effects) == ["Kill", "Wake"]
            assert isinstance(effects[0], Kill)
            return effects[0]
    return None


def serving() -> Host:
    host = Host(CONFIG)
    host.serving(0)
    return host


def test_idle_for_long_is_well() -> None:
    assert watch(serving(), 60, lambda now: {"loop_beat": now}) is None


def test_steps_that_go_on_are_well() -> None:
    def see(now: int) -> dict[str, int]:
        step = now // (3 * SECOND)
        started = step * 3 * SECOND
        return {"steps": step, "step_started": started, "has_work": 1, "loop_beat": now}

    assert watch(serving(), 60, see) is None


def test_a_step_that_never_ends_is_killed_after_its_bound() -> None:
    """An endless loop below the device seam; the event loop still turns."""
    host = serving()
    begun = host.now
    see = {"step_started": begun, "step_predicted_ns": SECOND // 2, "has_work": 1}
    kill = watch(host, 60, lambda now: {**see, "loop_beat": now})
    assert kill is not None
    assert "its step of 0.500 s (predicted)" in kill.reason
    assert 9 * SECOND <= host.now - begun <= 10 * SECOND, "5 s + 8 x 0.5 s"


def test_a_long_step_is_given_its_time() -> None:
    host = serving()
    begun = host.now
    see = {"step_started": begun, "step_predicted_ns": 20 * SECOND, "has_work": 1}
    assert watch(host, 160, lambda _: see) is None, "nor may its loop be missed meanwhile"
    assert watch(host, 20, lambda _: see) is not None


def test_work_without_any_step_is_killed() -> None:
    host = serving()
    kill = watch(host, 60, lambda now: {"steps": 9, "has_work": 1, "loop_beat": now})
    assert kill is not None
    assert "it had work and ran no step" in kill.reason


def test_one_that_stopped_while_its_agent_was_away_is_not_waited_for() -> None:
    """It cannot say that it is ready; its page tells that it was."""
    host = Host(CONFIG)
    host.on(Adopted(executor=ExecutorId(0), pid=77))
    begun = host.now
    kill = watch(host, 60, lambda _: {"steps": 9, "has_work": 1, "loop_beat": begun})
    assert kill is not None
    assert 5 * SECOND <= host.now - begun <= 6 * SECOND, "not the patience with those that start"


def test_work_that_came_just_now_has_its_time() -> None:
    host = serving()
    assert watch(host, 60, lambda now: {"steps": 9, "loop_beat": now}) is None
    assert watch(host, 4, lambda now: {"steps": 9, "has_work": 1, "loop_beat": now}) is None


def test_a_frozen_executor_is_killed_even_when_idle() -> None:
    kill = watch(serving(), 60, lambda _: {"loop_beat": 1})
    assert kill is not None
    assert "its event loop stood still" in kill.reason


def test_a_host_that_slept_kills_nobody() -> None:
    host = serving()
    see = {"steps": 3, "step_started": host.now, "has_work": 1, "loop_beat": 1}
    assert watch(host, 3, lambda _: see) is None
    host.now += 3600 * SECOND
    assert watch(host, 0.3, lambda _: see) is None, "a few late samples prove nothing"
    assert watch(host, 60, lambda now: {"steps": now, "loop_beat": now}) is None


def test_a_few_samples_far_apart_prove_nothing() -> None:
    host = serving()
    for _ in range(4):
        host.now += 100 * SECOND
        assert host.sample(0, loop_beat=1, has_work=1) == []


def test_only_who_has_come_up_is_watched() -> None:
    """While it loads its event loop never turned."""
    host = Host(CONFIG)
    host.start(0)
    host.spawned(0)
    assert watch(host, 60, lambda _: {}) is None
    host.ready(0)
    assert watch(host, 60, lambda _: {"loop_beat": 1}) is not None
    assert watch(host, 60, lambda _: {"loop_beat": 1}) is None, "it is killed once"


def test_one_stuck_executor_leaves_the_others_alone() -> None:
    host = serving()
    host.serving(1)
    killed = []
    for _ in range(100):
        host.now += TENTH
        killed += [e.executor for e in host.sample(0, loop_beat=1) if isinstance(e, Kill)]
        killed += [e.executor for e in host.sample(1, loop_beat=host.now) if isinstance(e, Kill)]
    assert killed == [0]
