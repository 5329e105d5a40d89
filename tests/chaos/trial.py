"""One trial: a tree, a crowd of clients, a saboteur, and what must hold in the end."""

import asyncio
import dataclasses
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import recovery
import traces
from house import House, tree_config, until
from saboteur import Saboteur
from streams import Ask, Clients, Outcome, Reference, ended_wrong

from tercet.node_agent.config import NodeAgentConfig
from tercet.observe.config import ObserveConfig
from tercet.pool.config import PoolConfig
from tercet.runtime.config import Fault, TreeConfig

References = dict[Ask, Reference]
TOLD_S = 2.0
"""Executors tell of their blocks each half second."""

_SERIES = re.compile(
    r'^vllm:(num_requests_\w+|kv_cache_usage_perc)\{engine="(\w+)".*\} (\S+)$', re.MULTILINE
)


def chaos_config(
    cache: Path,
    *,
    replicas: int,
    model: str | None = None,
    kv_bytes: int = 12 << 20,
    faults: tuple[Fault, ...] = (),
) -> TreeConfig:
    """A tree whose agent has little patience, with too little KV memory for comfort."""
    config = tree_config(cache, replicas=replicas, kv_cache_memory_bytes=kv_bytes, faults=faults)
    return dataclasses.replace(
        config,
        model=model or config.model,
        node_agent=NodeAgentConfig(progress_floor_s=1.5, start_timeout_s=30.0),
        observe=ObserveConfig(log_level="error"),
    )


class Trial:
    """A tree and what is known of it; `close` checks that nothing is left."""

    def __init__(
        self,
        config: TreeConfig,
        *,
        start: Callable[[TreeConfig], House] = House,
        unrest: Callable[[House, int], str] | None = None,
        holdings: Callable[[House], Counter[str]] = traces.holdings,
        prepared: bool = False,
    ) -> None:
        """`unrest` says what keeps so many executors from rest; `holdings` counts what a tree has
        that shall be the same in the end; `prepared`: the model's image is in the cache.
        """
        self._cache = Path(config.cache_folder)
        self._replicas = config.runtime.num_executors
        self._unrest = unrest or busy
        self._holdings_of = holdings
        if not prepared:
            House(colocated(config)).close()  # makes the model's image, which stays
        self._files = traces.files(self._cache)
        self.house = start(config)
        self._sockets = traces.abstract_sockets(self.house)
        assert self._sockets
        port = int(self.house.tree.url.rsplit(":", 1)[1])
        self.clients = Clients(port, config.served_names[0])
        self._references: References = {}
        self._asks: Sequence[Ask] = ()

    def measure(self, asks: Sequence[Ask], expected: References | None = None) -> None:
        """Take the undisturbed answers, and note what the tree has at rest; `expected` are those
        of another tree: they are taken instead, and these must equal them.
        """
        self._asks = asks
        own = asyncio.run(self.clients.references(asks))
        self._references = own if expected is None else expected
        for ask, reference in self._references.items():
            assert own[ask].tokens[: reference.exact] == reference.tokens[: reference.exact]
        never(self.unrest)
        self._holdings = self._holdings_of(self.house)

    def run(
        self, saboteur: Saboteur, rand: Random, *, count: int, for_s: float, leaving: float
    ) -> None:
        with saboteur:
            asyncio.run(
                self.clients.crowd(rand, self._asks, count=count, for_s=for_s, leaving=leaving)
            )

    def verdicts(self) -> tuple[list[Outcome], list[str]]:
        """Give the streams that came to their end, and everything that is wrong with any."""
        whole = [outcome for outcome in self.clients.outcomes if not outcome.left]
        wrong = [found for outcome in whole if (found := ended_wrong(outcome))]
        return whole, wrong + self.deviations()

    def strays(self) -> int:
        """Count the streams that differ at all, be it behind a near-tie: on the native device,
        where tokens do not depend on company, there is none.
        """
        return sum(
            self._references[outcome.ask].strays(outcome) for outcome in self.clients.outcomes
        )

    def deviations(self) -> list[str]:
        """Tokens that differ from the undisturbed run's, of whole streams and of beginnings."""
        outcomes = self.clients.outcomes
        found = [self._references[outcome.ask].deviation(outcome) for outcome in outcomes]
        return [deviation for deviation in found if deviation]

    def summary(self, saboteur: Saboteur, whole: list[Outcome]) -> str:
        known = self._references.values()
        num_left = len(self.clients.outcomes) - len(whole)
        num_other = sum(self._references[outcome.ask].strays(outcome) for outcome in whole)
        num_broken = sum(bool(outcome.broken) for outcome in whole)
        num_ties = sum(one.num_ties for one in known)
        num_tokens = sum(len(outcome.tokens) for outcome in self.clients.outcomes)
        return (
            f"\n{len(whole)} streams ended ({num_broken} cut), {num_left} left by their clients, "
            f"{num_tokens} tokens; near-ties: {num_ties} positions in "
            f"{sum(len(one.tokens) for one in known)}, {num_other} streams differ behind one\n"
            f"{recovery.table(saboteur.done, whole)}"
        )

    def unrest(self) -> str:
        """Say what keeps the tree from rest: all executors there, without work, their blocks back;
        nothing if it rests.
        """
        house = self.house
        if len(house.executors()) != self._replicas or not house.ready():
            return f"executors {house.executors()}, ready: {house.ready()}"
        return self._unrest(house, self._replicas)

    def change(self) -> str:
        """Say what the tree has more or less than before, after a stream for every executor."""
        few = [ask for ask in self._asks for _ in range(self._replicas)][: 4 * self._replicas]
        answers = asyncio.run(self._burst(few))
        wrong = next(filter(None, map(ended_wrong, answers)), "")
        never(self.unrest)
        different = traces.difference(self._holdings, self._holdings_of(self.house))
        return wrong or str(different or "")

    async def _burst(self, asks: Sequence[Ask]) -> list[Outcome]:
        return list(await asyncio.gather(*(self.clients.ask(ask) for ask in asks)))

    def check_rest(self) -> None:
        """Fail unless blocks, processes, descriptors and mappings are what they were."""
        never(self.change)
        never(lambda: str(traces.zombies(self.house) or ""))
        time.sleep(TOLD_S)  # what was told is of before the last streams, perhaps
        never(self.unrest)

    def close(self) -> None:
        """End the tree: no process, socket or file of it is left."""
        self.house.close()
        assert self.house.gone()
        assert not traces.sockets_left(self._sockets)
        left = traces.files(self._cache) - self._files
        assert not left, left


def busy(house: House, count: int) -> str:
    """Say what so many executors still do or hold, as they last told the front."""
    shown: dict[str, dict[str, float]] = {}
    for name, engine, value in _SERIES.findall(house.client.get("/metrics").text):
        shown.setdefault(engine, {})[name] = float(value)
    num_told = sum(engine.isdigit() for engine in shown)
    if num_told == count and not any(any(each.values()) for each in shown.values()):
        return ""
    return f"busy: {shown}"


def never(trouble: Callable[[], str]) -> None:
    """Wait until there is no trouble; fail with the last one if it does not end."""
    last = [""]

    def over() -> bool:
        last[0] = trouble()
        return not last[0]

    try:
        until(over, "the end of a trouble")
    except AssertionError as error:
        raise AssertionError(last[0]) from error


def colocated(config: TreeConfig) -> TreeConfig:
    """One executor that does everything, on one host, undisturbed and without a pool."""
    runtime = dataclasses.replace(
        config.runtime,
        faults=(),
        prefill=0,
        decode=0,
        replicas=1,
        hosts=1,
        cluster_address=None,
        cluster_secret_file=None,
    )
    return dataclasses.replace(config, runtime=runtime, pool=PoolConfig())


def undisturbed(config: TreeConfig, asks: Sequence[Ask]) -> References:
    """Give what such an executor answers."""
    house = House(colocated(config))
    port = int(house.tree.url.rsplit(":", 1)[1])
    try:
        return asyncio.run(Clients(port, config.served_names[0]).references(asks))
    finally:
        house.close()
