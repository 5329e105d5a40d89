"""What lenders hear of asks: which still stand, which are over, said again after a broken link; and
what is told of fetches in facts.
"""

from collections.abc import Iterable

from tercet.base.ids import Address
from tercet.messages.effects import Effect, Fact, Send
from tercet.messages.events import Moved
from tercet.messages.kv import RenewLeases, ReturnBlocks
from tercet.task_executor.fetch import Fetch
from tercet.task_executor.neighbours import Neighbours
from tercet.transfer.states import FetchState

NUM_UNTOLD_MAX = 4096
"""Ends that a lender which is away has not heard of; older ones expire there by themselves."""
NUM_AWAY_MAX = 256
"""Lenders that are away; of those that went first none may be left."""


class Teller:
    """Ends reach every lender that is there, or comes back."""

    def __init__(self, neighbours: Neighbours) -> None:
        self._neighbours = neighbours
        self._untold: dict[Address, list[int]] = {}

    def over(self, lender: Address, ask: int, out: list[Effect]) -> None:
        """Say that an ask is over, now or when the lender is connected."""
        if self._neighbours.connected(lender):
            out.append(Send(to=lender, message=ReturnBlocks(asks=(ask,)), cause=lender))
            return
        if lender not in self._untold and len(self._untold) >= NUM_AWAY_MAX:
            del self._untold[next(iter(self._untold))]
        untold = self._untold.setdefault(lender, [])
        untold.append(ask)
        del untold[:-NUM_UNTOLD_MAX]

    def joined(self, lender: Address, out: list[Effect]) -> None:
        """Say what a lender could not hear."""
        untold = self._untold.pop(lender, None)
        if untold:
            out.append(Send(to=lender, message=ReturnBlocks(asks=tuple(untold)), cause=lender))

    def renew(self, lender: Address, fetches: Iterable[Fetch], now: int, out: list[Effect]) -> None:
        """Say which of its asks still stand."""
        asks = tuple(
            fetch.ask
            for fetch in fetches
            if fetch.lender == lender and fetch.state is not FetchState.DEFERRED
        )
        if asks and self._neighbours.connected(lender):
            message = RenewLeases(asks=asks, said=now)
            out.append(Send(to=lender, message=message, cause=lender))


def move_fact(event: Moved, purpose: str, *, cause: str) -> Fact:
    labels = (("wire", event.wire), ("end", event.end.value), ("for", purpose))
    values = (("bytes", float(event.size)), ("duration_s", event.duration_ns / 1e9))
    return Fact(name="kv.moved", values=values, labels=labels, cause=cause)


def handover_fact(fetch: Fetch, now: int) -> Fact:
    values = (("blocks", float(fetch.num_blocks)), ("s", (now - fetch.began) / 1e9))
    labels = (("way", fetch.way.value),)
    return Fact(name="kv.handover", values=values, labels=labels, cause=fetch.run.name)


def failure_fact(fetch: Fetch, reason: str) -> Fact:
    labels = (("reason", reason), ("peer", fetch.lender))
    return Fact(name="kv.failed", labels=labels, cause=fetch.run.name)
