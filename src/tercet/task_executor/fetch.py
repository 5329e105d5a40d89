"""Tasks' prompts at lenders: what was asked, how it comes, how far it is; and the book of all."""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS, Address, BlockId, ExecutorId
from tercet.messages.events import Moved
from tercet.messages.kv import AskBlocks, Reach, Way
from tercet.scheduling.run import TaskRun
from tercet.scheduling.states import RunState
from tercet.task_executor.inflow import Inflow
from tercet.transfer.states import FetchEvent, FetchState, next_fetch_state

WAITS = (FetchState.DEFERRED, FetchState.ASKED, FetchState.MOVING)
"""Its task waits for it."""


@dataclass(slots=True)
class Fetch:
    """One task's prompt at one lender."""

    ask: int
    run: TaskRun
    lender: Address
    reach: Reach
    way: Way
    num_blocks: int
    began: int
    heard: int
    """When the lender last said something of it."""
    state: FetchState = FetchState.DEFERRED
    inflow: Inflow | None = None
    stands_until: int = 0
    """Read in place: the lender keeps it for us until then at least, or until it is renewed."""
    memory: str = ""
    """Read in place: whose arena."""
    last: bool = False
    """The lender told of all blocks."""
    num_taken_back: int = 0
    fastest: Moved | None = None
    """Of its moves, for its size."""

    def timed(self, event: Moved) -> None:
        """Take note of how long a move took."""
        best = self.fastest
        if event.size and (
            best is None or event.duration_ns * best.size < best.duration_ns * event.size
        ):
            self.fastest = event

    def same(self, other: "Fetch") -> bool:
        """Whether it fetches the same blocks for another task."""
        return (
            self is not other
            and self.num_blocks == other.num_blocks
            and self.run.task.namespace == other.run.task.namespace
            and self.tokens == other.tokens
        )

    @property
    def tokens(self) -> "array[int]":
        return self.run.tokens[: BLOCK_TOKENS * self.num_blocks]

    def step(self, event: FetchEvent) -> None:
        self.state = next_fetch_state(self.state, event, f"fetch {self.ask} of {self.run.name}")


def asks(fetch: Fetch, executor: ExecutorId, fingerprint: str) -> AskBlocks:
    """Give what a lender is told that is to compute it."""
    return AskBlocks(
        ask=fetch.ask,
        executor=executor,
        namespace=fetch.run.task.namespace,
        fingerprint=fingerprint,
        tokens=fetch.tokens.tobytes(),
        first=0 if fetch.inflow is None else fetch.inflow.first,
        way=fetch.way,
    )


class Fetches:
    """All fetches that are not done, by the number of their ask."""

    def __init__(self) -> None:
        self._all: dict[int, Fetch] = {}
        self._deferred: dict[int, Fetch] = {}
        """Those that wait for room, first come first."""
        self._next_ask = 0

    def __len__(self) -> int:
        return len(self._all)

    def get(self, ask: int) -> Fetch | None:
        return self._all.get(ask)

    def all(self) -> list[Fetch]:
        return list(self._all.values())

    def newest(self) -> Iterable[Fetch]:
        return reversed(self._all.values())

    def of(self, lender: Address) -> list[Fetch]:
        return [fetch for fetch in self._all.values() if fetch.lender == lender]

    def lenders(self) -> list[Address]:
        return list(dict.fromkeys(fetch.lender for fetch in self._all.values()))

    def deferred(self) -> list[Fetch]:
        return list(self._deferred.values())

    @property
    def num_waited_for(self) -> int:
        """Fetches whose source was asked and whose tasks wait."""
        waited = sum(fetch.state in WAITS for fetch in self._all.values())
        return waited - len(self._deferred)

    @property
    def num_holding(self) -> int:
        """Those that hold reserved blocks."""
        return sum(fetch.inflow is not None for fetch in self._all.values())

    def held_blocks(self) -> Iterator[BlockId]:
        """Go through the blocks that are reserved."""
        for fetch in self._all.values():
            if fetch.inflow is not None:
                yield from fetch.inflow.holding.table

    def comes(self, fetch: Fetch) -> bool:
        """Whether its blocks are being copied for another task."""
        return any(one.same(fetch) and one.inflow is not None for one in self._all.values())

    def idle_readers(self) -> list[Fetch]:
        """Those that keep blocks lent to tasks which wait for room."""
        waiting = (one for one in self._all.values() if one.run.state is RunState.WAITING)
        return [fetch for fetch in waiting if fetch.state is FetchState.BORROWED]

    def file(self, fetch: Fetch) -> None:
        """Have it wait for room, under a new number: the former one is over for its lender."""
        self._next_ask += 1
        fetch.ask = self._next_ask
        self._all[fetch.ask] = self._deferred[fetch.ask] = fetch

    def begun(self, fetch: Fetch) -> None:
        """Its source is asked now."""
        del self._deferred[fetch.ask]
        fetch.run.deferred = False

    def close(self, fetch: Fetch) -> None:
        """Forget it under its number and give back what it reserved."""
        del self._all[fetch.ask]
        self._deferred.pop(fetch.ask, None)
        fetch.run.deferred = False
        if fetch.inflow is not None:
            fetch.inflow.close()
            fetch.inflow = None

    def check(self) -> None:
        """Raise unless every record fits its state."""
        for ask, fetch in self._all.items():
            name = f"fetch {ask} of {fetch.run.name}"
            must(ask == fetch.ask, f"{name} is filed as another")
            must(fetch.state is not FetchState.DONE, f"{name} is done and still kept")
            must(fetch.inflow is None or fetch.way is not Way.REFERENCE, f"{name} reserved blocks")
            waits = fetch.state in WAITS
            fetching = fetch.run.state is RunState.FETCHING
            must(waits == fetching, f"{name} is {fetch.state}, its task {fetch.run.state}")
            leaving = fetch.state is FetchState.LEAVING
            must(
                not leaving or (fetch.inflow and fetch.inflow.num_under_way),
                f"{name} waits for no move",
            )
            deferred = fetch.state is FetchState.DEFERRED
            must(deferred == (ask in self._deferred), f"{name} is {fetch.state}: who waits?")
            must(not deferred or fetch.inflow is None, f"{name} waits for room that it has")
