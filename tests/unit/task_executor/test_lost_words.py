"""Messages about blocks that vanish on a connection that stands: asked again, said again."""

import pytest
from executor_harness import task
from peer_world import World

from tercet.messages.kv import AskBlocks, BlocksReady, ReturnBlocks
from tercet.messages.wire import Role

P, D = "executor/1", "executor/2"
SECOND = 10**9


def run_without(kind: type, way: str, number: int) -> World:
    """A hand-over in which the message of this kind with this number is lost."""
    house = World({1: Role.PREFILL, 2: Role.DECODE}, way=way)
    house.submit(task(1, [1, 2] * 40, new=12), D, prefill=P)
    seen = 0
    for _ in range(200):
        if house.queue:
            seen += isinstance(house.queue[0][2], kind)
            if isinstance(house.queue[0][2], kind) and seen == number:
                house.queue.pop(0)
            else:
                house.deliver()
            continue
        for address, peer in house.peers.items():
            if peer.moves and house.can_move(peer.moves[0]):
                house.move(address)
            elif peer.plans:
                house.step(address)
        house.pass_time(SECOND // 10)
    return house


@pytest.mark.parametrize("way", ["reference", "layer", "request"])
@pytest.mark.parametrize("kind", [AskBlocks, BlocksReady])
def test_what_is_waited_for_is_asked_for_again(kind: type, way: str) -> None:
    house = run_without(kind, way, 1)
    house.quiet()
    house.verify(1)
    assert not house.facts_of("kv.failed"), "the prompt came after all"


def test_a_return_that_was_lost_holds_blocks_only_for_a_lease() -> None:
    house = run_without(ReturnBlocks, "request", 1)
    house.quiet()
    house.verify(1)
    assert house.peers[P].machine.partners.lender.num_lendings == 0
