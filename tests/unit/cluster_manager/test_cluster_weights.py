"""A host that serves other weights than the cluster is in no list and is told to end."""

from cluster_cases import Cluster, lists, starts, told

from tercet.base.ids import Address
from tercet.messages.effects import Effect, Fact, Send
from tercet.messages.kv import Host
from tercet.messages.wire import HostRefused


def host(name: str, weights: str = "aaaa") -> Host:
    return Host(name=name, agent=Address(f"agent/{name}"), pooled=True, weights=weights)


def refusals(effects: list[Effect]) -> list[tuple[str, str]]:
    return [
        (e.to, e.message.reason)
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, HostRefused)
    ]


def cluster_of_one() -> Cluster:
    cluster = Cluster(count=2, weights="aaaa")
    cluster.join("front/0")
    cluster.join("agent/a")
    cluster.report(sender="agent/a", host=host("a"))
    cluster.ready(0, sender="agent/a")
    cluster.ready(1, sender="agent/a")
    return cluster


def test_a_host_with_the_cluster_s_weights_is_welcome() -> None:
    cluster = Cluster(count=2, weights="aaaa", num_agents=2)
    for name in "ab":
        cluster.join(f"agent/{name}")
        effects = cluster.report(sender=f"agent/{name}", host=host(name))
        assert refusals(effects) == []
    assert starts(effects) == [("agent/a", 0), ("agent/b", 1)]


def test_a_host_with_other_weights_is_refused_in_a_sentence_and_never_serves() -> None:
    cluster = cluster_of_one()
    cluster.join("agent/b")
    effects = cluster.report(7, 8, sender="agent/b", host=host("b", "bbbb"))
    ((to, sentence),) = refusals(effects)
    assert to == "agent/b"
    assert "Host b has other weights than the cluster: bbbb, expected aaaa" in sentence
    assert lists(effects) == [], "nobody hears of its executors"
    (fact,) = [e for e in effects if isinstance(e, Fact) and e.name == "cluster.host_refused"]
    assert dict(fact.labels)["agent"] == "agent/b"
    effects = cluster.ready(7, sender="agent/b")
    assert lists(effects) == []
    cluster.want(colocated=6)
    assert {to for to, _ in starts(cluster.tick())} <= {"agent/a"}
    (members,) = {message.hosts for message in told(cluster.tick(6.0)).values()}
    assert members == (host("a"),)
    assert "agent/b" not in told(cluster.tick(6.0))


def test_a_host_that_says_nothing_of_its_weights_is_refused_too() -> None:
    cluster = cluster_of_one()
    cluster.join("agent/b")
    ((_, sentence),) = refusals(cluster.report(sender="agent/b", host=host("b", "")))
    assert "it says none, expected aaaa" in sentence
    cluster.join("agent/c")
    assert len(refusals(cluster.report(sender="agent/c"))) == 1


def test_a_host_that_was_welcome_loses_its_executors_if_it_comes_back_with_other_weights() -> None:
    cluster = cluster_of_one()
    cluster.gone("agent/a")
    cluster.join("agent/a", epoch=2)
    effects = cluster.report(0, 1, sender="agent/a", epoch=2, host=host("a", "cccc"))
    assert len(refusals(effects)) == 1
    assert lists(effects)[-1][1] == []


def test_a_host_that_was_refused_is_welcome_once_it_has_the_weights() -> None:
    cluster = cluster_of_one()
    cluster.join("agent/b")
    cluster.report(sender="agent/b", host=host("b", "bbbb"))
    cluster.gone("agent/b")
    cluster.join("agent/b", epoch=2)
    effects = cluster.report(7, sender="agent/b", epoch=2, host=host("b"))
    assert refusals(effects) == []
    assert told(effects)["agent/b"].hosts == (host("a"), host("b"))


def test_where_nobody_says_what_is_served_nobody_looks() -> None:
    cluster = Cluster(count=1)
    cluster.join("agent/a")
    assert refusals(cluster.report(sender="agent/a", host=host("a", "zzzz"))) == []
