"""Runs the systems one after the other: nothing else of the comparison lives meanwhile.

Rounds go through the systems forwards and backwards in turn, so that a machine that grows slower
does so for all.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.peers import loads
from benchmarks.peers.limit import rereads_per_s, weight_bytes
from benchmarks.peers.results import Failure, Load, Measure, Results
from benchmarks.peers.running import Worker, first_output_s, serving
from benchmarks.peers.systems import OURS, System

CONTEXT = 300
DECODES = {1: 64, 8: 48, 32: 32}
"""Streams: steps of a round."""
PREFILLS = (1024, 3300)
MORE = 1.5
"""Times the best peer's rate that we must bear."""
COLD_RUNS = 3


@dataclass(frozen=True)
class Measuring:
    """One comparison."""

    results: Results
    systems: Sequence[System]
    rounds: int
    scratch: Path

    def rows(self) -> None:
        """Streams, prefills, first tokens and limits of every system."""
        for turn in range(self.rounds):
            for system in self.systems if turn % 2 == 0 else self.systems[::-1]:
                self._try(system, partial(self._system, system, turn))

    def mixed(self) -> None:
        """The mixed load: the best format of each product, by its own server."""
        chosen = self._best_formats()
        for turn in range(self.rounds):
            for system in chosen if turn % 2 == 0 else chosen[::-1]:
                self._try(system, partial(self._server, system, turn))
        ours = [system for system in chosen if system.is_ours]
        rate = self._best_peer_rate(chosen)
        for system in ours if rate else []:
            self._try(system, partial(self._dared, system, MORE * rate))

    def _system(self, system: System, turn: int) -> None:
        if self.results.has(system.key, f"prefill {PREFILLS[-1]}", turn):
            return
        _say(f"round {turn + 1}: {system.key}")
        with Worker(system) as worker:
            self._add(system, "first token, worker", worker.ready_s, turn)
            worker.rate(_decode(4, 8, seed=1))
            worker.rate({"do": "prefill", "tokens": PREFILLS[0], "seed": 2})
            for streams, steps in DECODES.items():
                rate = worker.rate(_decode(streams, steps, seed=100 * turn + 10))
                self._add(system, f"decode {streams}", rate, turn)
            if system.is_ours:
                self._limit(system, turn)
            for tokens in PREFILLS:
                command = {"do": "prefill", "tokens": tokens, "seed": 100 * turn + tokens}
                self._add(system, f"prefill {tokens}", worker.rate(command), turn)
        if system.cold and Path(system.cold[0]).exists():
            runs = [first_output_s(system.cold, system.variables) for _ in range(COLD_RUNS)]
            self._add(system, "first token, command", sorted(runs)[COLD_RUNS // 2], turn)

    def _limit(self, system: System, turn: int) -> None:
        quantization = system.key.removeprefix(f"{OURS}-")
        size = weight_bytes(quantization)
        self._add(system, "limit", rereads_per_s(size, folder=self.scratch), turn)

    def _server(self, system: System, turn: int) -> None:
        if any((load.system, load.turn) == (system.key, turn) for load in self.results.loads):
            return
        _say(f"round {turn + 1}: {system.key}'s server")
        with serving(system) as running:
            known = loads.best(self._loads(system))
            if known is None:
                found = loads.ladder(system.key, running.url, turn)
            else:
                loads.warm(running.url)
                found = [loads.one_load(system.key, running.url, turn, rate=known.rate)]
            for load in found:
                self.results.add(load)
            whole, arenas = running.pss_mb()
            self._add(system, "memory", whole, turn)
            self._add(system, "memory kv", arenas, turn)

    def _dared(self, system: System, rate: float) -> None:
        """Ours at more than the best peer's rate, once a round."""
        with serving(system) as running:
            loads.warm(running.url)
            for turn in range(self.rounds):
                self.results.add(loads.one_load(system.key, running.url, turn, rate=rate))

    def _best_formats(self) -> list[System]:
        products: dict[str, list[System]] = {}
        for system in self.systems:
            if system.server and not system.missing and Path(system.server[0]).exists():
                products.setdefault(system.product, []).append(system)
        by_key = {system.key: system for system in self.systems}
        most = f"decode {max(DECODES)}"
        keys = [
            self.results.best([one.key for one in group], most) or group[0].key
            for group in products.values()
        ]
        return [by_key[key] for key in keys]

    def _best_peer_rate(self, chosen: Sequence[System]) -> float:
        """The best rate of the peer that gives most tokens a second; 0: no peer."""
        peers = [loads.best(self._loads(one)) for one in chosen if not one.is_ours]
        rates = {load.tokens_per_s: load.rate for load in peers if load}
        return rates[max(rates)] if rates else 0.0

    def _loads(self, system: System) -> list[Load]:
        return [load for load in self.results.loads if load.system == system.key]

    def _add(self, system: System, name: str, value: float, turn: int) -> None:
        self.results.add(Measure(system=system.key, name=name, value=value, turn=turn))

    def _try(self, system: System, do: Callable[[], None]) -> None:
        """A system that fails is told in the report; the others go on."""
        reason = ", ".join(f"{path.name} is not there" for path in system.missing)
        try:
            if not reason:
                do()
        except (RuntimeError, OSError, ValueError) as error:
            reason = str(error)
        if reason:
            _say(f"{system.key}: {reason}")
            self.results.add(Failure(system=system.key, reason=reason))


def _decode(streams: int, steps: int, *, seed: int) -> Mapping[str, object]:
    return {"do": "decode", "streams": streams, "context": CONTEXT, "steps": steps, "seed": seed}


def _say(text: str) -> None:
    print(f"... {text}", file=sys.stderr, flush=True)
