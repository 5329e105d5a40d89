"""Words of a broken peer about blocks: the task goes on without them, and nothing stays held."""

from array import array

import pytest
from executor_harness import task
from msgspec.structs import replace
from peer_world import World

from tercet.messages.events import ArenaWithdrawn, Received
from tercet.messages.kv import AskBlocks, BlocksReady, BlocksRefused, Way
from tercet.messages.wire import Role

P, D = "executor/1", "executor/2"
PROMPT = [1, 2] * 40


def i4(*values: int) -> bytes:
    return array("i", values).tobytes()


@pytest.mark.parametrize("way", ["reference", "layer", "request"])
@pytest.mark.parametrize(
    "odd",
    [
        lambda said: {"units": said.units + b"x"},
        lambda said: {"units": said.units + b"x", "lives": said.lives + b"x"},
        lambda said: {"units": said.units[:-1]},
        lambda said: {"lives": said.lives[:-1]},
        lambda said: {"lives": b""},
        lambda said: {"units": b"", "lives": b""},
        lambda said: {"first": -1},
        lambda said: {"first": said.first + 1},
        lambda said: {"units": said.units * 2, "lives": said.lives * 2},
    ],
)
def test_blocks_that_are_lent_in_odd_words_are_not_waited_for(way: str, odd) -> None:
    house = World({1: Role.PREFILL, 2: Role.DECODE}, way=way)
    house.submit(task(1, PROMPT, new=12), D, prefill=P)
    while not any(isinstance(mail[2], BlocksReady) for mail in house.queue):
        house.deliver() if house.queue else house.step(P)
    at = next(n for n, mail in enumerate(house.queue) if isinstance(mail[2], BlocksReady))
    sender, to, said = house.queue[at]
    house.queue[at] = (sender, to, replace(said, **odd(said)))
    house.quiet()
    house.verify(1)
    assert house.facts_of("kv.failed")
    house.on(D, ArenaWithdrawn(memory="local/kv/1"))
    assert "local/kv/1" not in house.peers[D].lent, "it still counts as read"


@pytest.mark.parametrize("tokens", [i4(*[1] * 16)[:-1], i4(), i4(*[1] * 15, -1), i4(*[1] * 416)])
def test_an_ask_that_no_engine_could_compute_is_refused(tokens: bytes) -> None:
    house = World({1: Role.PREFILL, 2: Role.DECODE}, way="request")
    ask = AskBlocks(
        ask=1,
        executor=2,
        namespace="",
        fingerprint="weights",
        tokens=tokens,
        first=0,
        way=Way.REQUEST,
    )
    house.on(P, Received(sender=D, epoch=1, message=ask))
    assert isinstance(house.queue[0][2], BlocksRefused)
    assert house.peers[P].machine.partners.lender.num_lendings == 0
    house.quiet()
