"""What is wanted and what there is, brought together."""

import pytest
from cluster_cases import AGENT, SECOND, Cluster, lists, ready, starts, stops

from tercet.base.errors import Invalid, InvariantBroken
from tercet.base.ids import Epoch, ExecutorId
from tercet.cluster_manager.config import ClusterManagerConfig, GroupConfig
from tercet.cluster_manager.machine import ClusterManager
from tercet.cluster_manager.states import MEMBER_STEPS, MemberEvent, MemberState, next_state
from tercet.messages.effects import Effect, Send, Wake
from tercet.messages.events import DrainRequested, Received
from tercet.messages.wire import Members, StartWaits


@pytest.mark.parametrize("state", MemberState)
@pytest.mark.parametrize("event", MemberEvent)
def test_every_pair_is_a_row_or_a_story(state: MemberState, event: MemberEvent) -> None:
    if (state, event) in MEMBER_STEPS:
        assert next_state(state, event, ExecutorId(1)) is MEMBER_STEPS[state, event]
    else:
        with pytest.raises(InvariantBroken, match=f"member 1 is {state}: it cannot take"):
            next_state(state, event, ExecutorId(1))


def test_nothing_is_started_before_an_agent_reported() -> None:
    cluster = Cluster(count=2)
    assert starts(cluster.join()) == []
    assert starts(cluster.tick()) == []
    assert starts(cluster.report()) == [(AGENT, 0), (AGENT, 1)]
    assert starts(cluster.tick()) == [], "they are under way"


def test_fronts_hear_of_every_change_and_when_they_join() -> None:
    cluster = Cluster(count=2)
    assert lists(cluster.join("front/0")) == [("front/0", [], False)]
    cluster.join()
    assert lists(cluster.report()) == [("front/0", [], True)]
    assert lists(cluster.ready(1)) == [("front/0", [1], True)]
    assert lists(cluster.ready(0)) == [("front/0", [0, 1], True)]
    assert lists(cluster.ready(0)) == [], "nothing changed"
    assert lists(cluster.join("front/1")) == [("front/1", [0, 1], True)]
    assert lists(cluster.lose(0)) == [("front/0", [1], True), ("front/1", [1], True)]
    cluster.gone("front/1")
    assert lists(cluster.ready(2)) == [("front/0", [1, 2], True)]


def test_versions_grow_and_lists_are_repeated() -> None:
    cluster = Cluster(count=1, repeat_s=3.0)
    cluster.join("front/0")
    cluster.join()
    cluster.report()
    effects = cluster.ready(0) + cluster.tick(1.0) + cluster.tick(2.0)
    sent = _to_front(effects)
    assert [one.executors for one in sent] == [(ready(0),)] * 2
    assert sent[0].version == sent[1].version
    lost = cluster.lose(0)
    assert _to_front(lost)[0].version > sent[0].version


def _to_front(effects: list[Effect]) -> list[Members]:
    return [
        e.message
        for e in effects
        if isinstance(e, Send) and e.to == "front/0" and isinstance(e.message, Members)
    ]


def test_what_dies_is_replaced_under_a_new_id_at_once() -> None:
    cluster = Cluster(count=2)
    cluster.join()
    cluster.report()
    cluster.ready(0)
    cluster.ready(1)
    assert starts(cluster.lose(0)) == [(AGENT, 2)]
    cluster.ready(2)
    assert starts(cluster.lose(2)) == [(AGENT, 3)]


def test_a_restarted_manager_takes_over_what_there_is() -> None:
    cluster = Cluster(count=3)
    cluster.join("front/0")
    cluster.join()
    effects = cluster.report(4, 7, next_executor=9)
    assert starts(effects) == [(AGENT, 9)]
    assert lists(effects) == [("front/0", [4, 7], True)]


def test_what_starts_unknown_to_it_is_not_started_twice() -> None:
    cluster = Cluster(count=2)
    cluster.join()
    assert starts(cluster.report(4, starting=(5,), next_executor=6)) == []
    assert starts(cluster.ready(5)) == []
    assert cluster.machine.standing().num_ready == 2


def test_an_agent_that_is_back_is_heard_before_anything_is_started() -> None:
    cluster = Cluster(count=2)
    cluster.join()
    cluster.report()
    cluster.ready(0)
    cluster.gone()
    assert starts(cluster.tick()) == []
    assert starts(cluster.join(epoch=2)) == []
    assert cluster.machine.standing().num_ready == 1, "executors outlive their agent"
    # Executor 1 was starting when the agent died; its process did not come to be.
    effects = cluster.report(0, next_executor=1, epoch=2)
    assert starts(effects) == [(AGENT, 2)]


def test_a_host_that_comes_back_counts_again_from_below() -> None:
    """Its whole tree started anew, within the minute: the agent's epoch is lower than that of its
    former self, which had been replaced a few times.
    """
    cluster = Cluster(count=1)
    cluster.join(epoch=7)
    assert starts(cluster.report(epoch=7)) == [(AGENT, 0)]
    cluster.ready(0)
    cluster.gone(epoch=7)
    cluster.join(epoch=3)
    assert starts(cluster.report(epoch=3)) == [(AGENT, 1)], "it no longer has the former's"
    cluster.join(epoch=2)
    assert starts(cluster.report(epoch=2)) == [], "an earlier self while this one is here"
    assert starts(cluster.report(epoch=3)) == [(AGENT, 2)]


def test_an_agent_that_stays_away_has_lost_its_executors() -> None:
    cluster = Cluster(count=2, agent_timeout_s=10.0, num_agents=2)
    cluster.join("front/0")
    for agent in ("agent/a", "agent/b"):
        cluster.join(agent)
    cluster.report(0, sender="agent/a", next_executor=1)
    cluster.report(1, sender="agent/b", next_executor=2)
    cluster.gone("agent/a")
    assert starts(cluster.tick(9.0)) == []
    effects = cluster.tick(1.0)
    assert starts(effects) == [("agent/b", 2)]
    assert lists(effects) == [("front/0", [1], True)]
    # It comes back with its executor: there is one too many, the youngest that starts goes.
    cluster.join("agent/a", epoch=2)
    effects = cluster.report(0, sender="agent/a", epoch=2)
    assert stops(effects) == [("agent/b", 2)]


def test_starts_are_spread_over_agents() -> None:
    cluster = Cluster(count=4, num_agents=2)
    cluster.join("agent/a")
    cluster.join("agent/b")
    assert starts(cluster.report(sender="agent/a")) == [], "not settled"
    sent = starts(cluster.report(sender="agent/b"))
    assert sorted(agent for agent, _ in sent) == ["agent/a"] * 2 + ["agent/b"] * 2


def test_a_missing_agent_does_not_hold_the_others_for_ever() -> None:
    cluster = Cluster(count=1, num_agents=2, agent_timeout_s=5.0)
    cluster.join("agent/a")
    cluster.report(sender="agent/a")
    assert starts(cluster.tick(4.0)) == []
    assert starts(cluster.tick(1.0)) == [("agent/a", 0)]


def test_one_too_many_and_other_kinds_are_stopped_and_reminded() -> None:
    cluster = Cluster(count=1)
    cluster.join("front/0")
    cluster.join()
    effects = cluster.report(3, 4, next_executor=5)
    assert stops(effects) == [(AGENT, 4)]
    assert lists(effects) == [("front/0", [3], True)]
    assert stops(cluster.say(ready(5, model="other"))) == [(AGENT, 5)]
    assert stops(cluster.tick()) == [(AGENT, 4), (AGENT, 5)]
    assert starts(cluster.lose(4)) == []
    assert stops(cluster.tick()) == [(AGENT, 5)]


def test_starts_that_fail_again_and_again_wait_longer_and_are_told() -> None:
    cluster = Cluster(count=1, backoff_s_min=1.0, backoff_s_max=3.0, failures_max=4)
    cluster.join()
    assert starts(cluster.report()) == [(AGENT, 0)]
    for number, backoff in enumerate((1, 2, 3, 3)):
        assert cluster.machine.standing().failed == ""
        effects = cluster.lose(number, "tensor x is truncated")
        assert starts(effects) == []
        retry = [e.at for e in effects if isinstance(e, Wake) and e.key.startswith("retry")]
        assert retry == [cluster.now + backoff * SECOND]
        assert starts(cluster.tick(backoff - 0.5)) == []
        assert starts(cluster.tick(0.5)) == [(AGENT, number + 1)]
    assert cluster.machine.standing().failed == (
        "4 times in a row a colocated executor of m ended before it was ready: "
        "tensor x is truncated"
    )
    cluster.ready(4)
    assert cluster.machine.standing().failed == ""
    assert starts(cluster.lose(4)) == [(AGENT, 5)], "it had been ready: no wait"


def test_starts_that_fail_together_count_once() -> None:
    cluster = Cluster(count=4, failures_max=2)
    cluster.join()
    cluster.report()
    for number in range(4):
        cluster.now += SECOND // 100
        cluster.lose(number)
    assert cluster.machine.standing().failed == ""


def test_a_start_without_a_word_is_given_up() -> None:
    cluster = Cluster(count=1, start_timeout_s=10.0, backoff_s_min=1.0)
    cluster.join()
    cluster.report()
    assert stops(cluster.tick(9.0)) == []
    assert stops(cluster.tick(1.0)) == [(AGENT, 0)]
    assert starts(cluster.tick(1.0)) == [(AGENT, 1)]


def test_a_start_that_waits_for_its_image_is_waited_for() -> None:
    cluster = Cluster(count=1, start_timeout_s=10.0, backoff_s_min=1.0)
    cluster.join()
    cluster.report()
    waits = StartWaits(executor=ExecutorId(0))
    for _ in range(4):
        assert stops(cluster.tick(6.0)) == []
        cluster.on(Received(sender=AGENT, epoch=Epoch(1), message=waits))
    assert stops(cluster.tick(9.0)) == []
    assert stops(cluster.tick(1.0)) == [(AGENT, 0)]


def test_draining_replaces_until_the_deadline_and_then_no_more() -> None:
    cluster = Cluster(count=1)
    cluster.join()
    cluster.report()
    cluster.ready(0)
    cluster.on(DrainRequested(deadline=cluster.now + 5 * SECOND))
    assert starts(cluster.lose(0)) == [(AGENT, 1)]
    cluster.now += 5 * SECOND
    cluster.ready(1)
    assert starts(cluster.lose(1)) == []


def test_strangers_are_not_believed() -> None:
    cluster = Cluster(count=1)
    cluster.join()
    cluster.report()
    assert lists(cluster.ready(0, sender="agent/unknown")) == []
    assert cluster.machine.standing().num_ready == 0
    cluster.report(5, epoch=9)
    assert cluster.machine.standing().num_ready == 0


def test_a_host_that_comes_late_to_a_restarted_cluster_keeps_no_number_of_another() -> None:
    cluster = Cluster(count=2, agent_timeout_s=5.0, num_agents=2)
    cluster.join()
    cluster.report()
    assert starts(cluster.tick(6.0)) == [(AGENT, 0), (AGENT, 1)]
    cluster.ready(0)
    late = "agent/late"
    cluster.join(late)
    told = cluster.report(0, starting=(1,), next_executor=4, sender=late)
    assert stops(told) == [(late, 0), (late, 1)]
    assert stops(cluster.ready(1, sender=late)) == [(late, 1)]
    found = cluster.machine.standing().members
    assert [(one.executor, one.agent, one.state) for one in found] == [
        (0, AGENT, "ready"),
        (1, AGENT, "starting"),
    ]
    cluster.report(sender=late)
    cluster.ready(1)
    assert starts(cluster.lose(1)) == [(late, 4)], "the next one has a number that nobody had"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tick_s": 0.0}, "tick_s is 0.0; expected a positive number."),
        ({"num_agents": 0}, "num_agents is 0; expected at least 1."),
    ],
)
def test_a_bad_setting_is_named(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(Invalid) as raised:
        ClusterManagerConfig(**settings)  # type: ignore[arg-type]
    assert raised.value.sentence == sentence


def test_two_targets_for_one_kind_contradict_each_other() -> None:
    twice = (GroupConfig(model="m"), GroupConfig(model="m", count=2))
    with pytest.raises(InvariantBroken, match="m/colocated is wanted twice"):
        ClusterManager(ClusterManagerConfig(), groups=twice)
