"""Messages on connections that stand: in order; of those about blocks some are lost or doubled."""

from dataclasses import dataclass, field

from tercet.base.rand import Rand
from tercet.messages.events import PeerJoined, Received
from tercet.messages.kv import ReturnBlocks
from tercet.messages.wire import CancelTask
from tercet.sim.network import Network
from tercet.sim.scenario import NetworkSpec
from tercet.sim.timeline import S, Timeline


@dataclass(eq=False)
class Peer:
    address: str
    host: str = "a"
    epoch: int = 1
    alive: bool = True
    heard: list[object] = field(default_factory=list)

    def deliver(self, event: object) -> None:
        self.heard.append(event)

    @property
    def numbers(self) -> list[int]:
        said = [event.message for event in self.heard if isinstance(event, Received)]
        return [one.asks[0] if isinstance(one, ReturnBlocks) else one.task for one in said]


def linked(*, other_host: str = "a") -> tuple[Network, Timeline, Peer, Peer]:
    timeline = Timeline()
    network = Network(timeline, NetworkSpec(), Rand(3))
    one, other = Peer("executor/1"), Peer("executor/2", host=other_host)
    network.connect(one, other)
    run(timeline)
    assert isinstance(other.heard[0], PeerJoined)
    return network, timeline, one, other


def run(timeline: Timeline) -> None:
    while timeline.step():
        pass


def say(network: Network, one: Peer, other: Peer, count: int = 200) -> None:
    for number in range(count):
        network.send(one, other.address, ReturnBlocks(asks=(number,)), 40)


def test_messages_come_once_and_in_order() -> None:
    network, timeline, one, other = linked()
    say(network, one, other)
    run(timeline)
    assert other.numbers == list(range(200))


def test_some_are_lost_and_the_rest_is_in_order() -> None:
    network, timeline, one, other = linked()
    network.lose(0.3, timeline.now + S)
    say(network, one, other)
    run(timeline)
    assert 100 < len(other.numbers) < 180
    assert other.numbers == sorted(other.numbers)
    assert network.num_lost == 200 - len(other.numbers)


def test_some_come_twice() -> None:
    network, timeline, one, other = linked()
    network.double(0.3, timeline.now + S)
    say(network, one, other)
    run(timeline)
    assert len(other.numbers) == 200 + network.num_doubled > 220
    assert list(dict.fromkeys(other.numbers)) == list(range(200))


def test_protocols_that_promise_nothing_are_spared() -> None:
    network, timeline, one, other = linked()
    network.lose(1.0, timeline.now + S)
    network.send(one, other.address, CancelTask(task=5), 40)
    run(timeline)
    assert other.numbers == [5]


def test_two_hosts_can_be_cut_from_each_other() -> None:
    network, timeline, one, other = linked(other_host="b")
    network.cut_hosts("a", "b", timeline.now + 2 * S)
    say(network, one, other, 3)
    run(timeline)
    assert other.numbers == []
    assert [type(event).__name__ for event in other.heard] == [
        "PeerJoined",
        "PeerGone",
        "PeerJoined",
    ]


def test_a_connection_can_be_ended_for_good() -> None:
    network, timeline, one, other = linked()
    network.hang_up(one.address, other.address)
    run(timeline)
    assert not network.linked(one.address, other.address)
    assert len(other.heard) == 2
