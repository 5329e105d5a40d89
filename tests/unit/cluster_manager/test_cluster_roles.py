"""Several roles of one model: wanted, changed while running, told to all, spread over hosts."""

from cluster_cases import AGENT, Cluster, changes, lists, ready, starts, stops, told

from tercet.messages.effects import Effect, Send
from tercet.messages.kv import Host
from tercet.messages.wire import Role, StartExecutor

P, D, C = Role.PREFILL, Role.DECODE, Role.COLOCATED


def started_roles(effects: list[Effect]) -> list[Role]:
    return [
        e.message.role
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, StartExecutor)
    ]


def running(**roles: int) -> Cluster:
    """A cluster in which all that is wanted is ready, numbered in the order of the roles."""
    cluster = Cluster(roles={Role(name): count for name, count in roles.items()})
    cluster.join("front/0")
    cluster.join()
    for number, role in enumerate(started_roles(cluster.report())):
        cluster.ready(number, role=role)
    return cluster


def test_every_role_gets_its_number() -> None:
    cluster = Cluster(roles={P: 1, D: 2})
    cluster.join()
    assert started_roles(cluster.report()) == [P, D, D]


def test_surplus_of_one_role_becomes_what_another_lacks() -> None:
    cluster = running(prefill=1, decode=1, colocated=2)
    effects = cluster.want(prefill=2, decode=2, colocated=0)
    assert changes(effects) == [(AGENT, 2, P), (AGENT, 3, D)]
    assert starts(effects) == []
    assert stops(effects) == []
    assert lists(effects) == [], "they are what they were until they say so"
    effects = cluster.ready(2, role=P)
    assert [one.role for one in told(effects)["front/0"].executors] == [P, D, P, C]
    assert changes(cluster.ready(3, role=D)) == []
    assert changes(cluster.tick()) == []


def test_more_is_started_and_less_is_stopped_after_roles_have_changed() -> None:
    cluster = running(colocated=2)
    effects = cluster.want(prefill=1, decode=2, colocated=0)
    assert changes(effects) == [(AGENT, 0, P), (AGENT, 1, D)]
    assert (starts(effects), started_roles(effects)) == ([(AGENT, 2)], [D])
    for number, role in ((0, P), (1, D), (2, D)):
        cluster.ready(number, role=role)
    effects = cluster.want(prefill=0, decode=0, colocated=1)
    assert changes(effects) == [(AGENT, 0, C)]
    assert stops(effects) == [(AGENT, 2), (AGENT, 1)]


def test_roles_that_are_not_named_stay() -> None:
    cluster = running(prefill=1, decode=1)
    assert started_roles(cluster.want(decode=2)) == [D]
    assert cluster.machine.standing().wanted == (("m", P, 1), ("m", D, 2))


def test_who_does_not_change_is_told_again_each_tick() -> None:
    cluster = running(colocated=1)
    assert changes(cluster.want(decode=1, colocated=0)) == [(AGENT, 0, D)]
    assert changes(cluster.ready(0, role=C)) == [], "a word from before"
    assert changes(cluster.tick()) == [(AGENT, 0, D)]
    assert changes(cluster.want(decode=0, colocated=1)) == [], "it never was anything else"
    assert changes(cluster.tick()) == []
    # The order was carried out after all, too late.
    assert changes(cluster.ready(0, role=D)) == [(AGENT, 0, C)]


def test_what_is_being_started_is_not_relabelled_but_replaced() -> None:
    cluster = Cluster(count=1)
    cluster.join()
    cluster.report()
    effects = cluster.want(decode=1, colocated=0)
    assert changes(effects) == []
    assert stops(effects) == [(AGENT, 0)]
    assert started_roles(effects) == [D]


def test_a_restarted_manager_takes_roles_as_it_finds_them() -> None:
    cluster = Cluster(roles={P: 1, D: 1})
    cluster.join()
    cluster.say(ready(4, role=D))
    effects = cluster.say(ready(5, role=P))
    assert (changes(effects), starts(effects), stops(effects)) == ([], [], [])


def test_executors_and_agents_hear_of_members_and_hosts() -> None:
    cluster = Cluster(count=1)
    local = Host(name="a", agent="agent/a", data="10.0.0.1:7000")  # type: ignore[arg-type]
    cluster.join("agent/a")
    cluster.report(sender="agent/a", host=local)
    effects = cluster.join("executor/0", epoch=5)
    assert told(effects)["executor/0"].hosts == (local,)
    effects = cluster.ready(0, sender="agent/a")
    assert sorted(told(effects)) == ["agent/a", "executor/0"]
    cluster.gone("executor/0", epoch=5)
    assert sorted(told(cluster.tick(6.0))) == ["agent/a"]


def test_a_host_stays_in_the_list_while_its_agent_may_come_back() -> None:
    cluster = Cluster(count=1, num_agents=2, agent_timeout_s=10.0)
    a, b = (Host(name=name, agent=f"agent/{name}") for name in "ab")  # type: ignore[arg-type]
    cluster.join("front/0")
    for host in (a, b):
        cluster.join(host.agent)
        effects = cluster.report(sender=host.agent, host=host)
    assert told(effects)["front/0"].hosts == (a, b)
    cluster.gone("agent/b")
    assert told(cluster.tick(9.0))["front/0"].hosts == (a, b), "only the repetition"
    assert told(cluster.join("agent/b", epoch=2))["agent/b"].hosts == (a, b)
    cluster.gone("agent/b", epoch=2)
    assert told(cluster.tick(10.0))["front/0"].hosts == (a,)


def test_roles_are_spread_over_hosts() -> None:
    cluster = Cluster(roles={P: 2, D: 2}, num_agents=2)
    cluster.join("agent/a")
    cluster.join("agent/b")
    cluster.report(sender="agent/a")
    effects = cluster.report(sender="agent/b")
    assert [agent for agent, _ in starts(effects)] == ["agent/a", "agent/b"] * 2
    assert started_roles(effects) == [P, P, D, D]
