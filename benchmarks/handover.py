"""What a hand-over costs: by reference between processes, by layer over a link as slow as prefill.

by reference   last prefill step ends ──▶ first decode step begins     (recordings of a tree)
by layer       |== prefill, layer by layer ==|
                  |== the same blocks over a link that takes as long ==|
                                              '------- exposed -------'
"""

import os
import random
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import numpy as np

from benchmarks.machine import heading
from benchmarks.report import Bar, Table, middle, spread
from benchmarks.reuse import first_token, prompt
from benchmarks.trees import serving
from tercet.base.ids import BLOCK_TOKENS, TaskId
from tercet.engine.build import build_engine, compile_model, kv_memory
from tercet.engine.engine import Engine
from tercet.engine.memory import AddressRange
from tercet.jobs.job import Task
from tercet.jobs.sampling import SamplingParameters
from tercet.messages.effects import Move
from tercet.messages.events import Received, StepDone
from tercet.messages.kv import BlocksReady, Strip
from tercet.messages.plan import SlotOpening, StepPlan
from tercet.runtime.borrowing import arena_region
from tercet.runtime.config import RuntimeConfig, TreeConfig
from tercet.runtime.opening import open_configured
from tercet.runtime.recording import Recording
from tercet.wires.regions import Regions
from tercet.wires.tcp import TcpWire
from tercet.wires.tcp_server import Limits, TcpServer

RESULTS = Path(__file__).parents[1] / "docs" / "benchmarks" / "handover.md"
TOKENS = 1024
CHUNK = 256
"""Rows of one prefill step: a chunk is lent when its step is planned."""
SECRET = b"handover"
WIRES = 3
"""Threads that carry layers."""


@click.command()
@click.option("--runs", default=30, show_default=True)
@click.option("--write", is_flag=True, help=f"Write docs/benchmarks/{RESULTS.name} too.")
def main(runs: int, *, write: bool) -> None:
    """Measure both."""
    lines = ["# Hand-over of a prefill", "", *heading(), ""]
    lines += [*by_reference(runs).lines(), *by_layer(max(3, runs // 6)).lines()]
    click.echo("\n".join(lines))
    if write:
        RESULTS.write_text("\n".join(lines))


def by_reference(runs: int) -> Table:
    """Read the recordings of both machines: their clocks are one."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--prefill", "1", "--decode", "1", "--record", f"{folder}/r"]
        with serving(["smollm2", "--log-level", "warning", *arguments]) as served:
            time.sleep(1.0)
            rand = random.Random(1)
            for _ in range(runs):
                first_token(served, prompt(rand, TOKENS))
        gaps = _gaps(Path(folder) / "r")
    micro = [gap / 1e3 for gap in gaps]
    return Table(
        title="By reference: from the last prefill step to the first decode step",
        command="python -m benchmarks.handover --write",
        columns=("prompts of 1,024 tokens", "us, median", "range"),
        rows=[(str(len(gaps)), middle(micro), spread(micro))],
        bars=(Bar(what="by reference", value=middle(micro) / 1000, bound=1.0, unit="ms"),),
        note=(
            "SmolLM2, two processes of one host, one request at a time. From the event that ends "
            "the prefill executor's step to the beginning of the first step of the decode executor "
            "that reads the lent blocks: a message between them, two turns of machines, a wake-up "
            "of the engine's thread."
        ),
    )


def _gaps(folder: Path) -> list[int]:
    prefill = _entries(folder, "executor-0")
    decode = _entries(folder, "executor-1")
    ends = [now for now, event in prefill if isinstance(event, StepDone)]
    gaps, lent = [], 0
    for now, event in decode:
        if isinstance(event, Received) and isinstance(event.message, BlocksReady):
            lent = now
        elif isinstance(event, StepDone) and lent:
            last = max((end for end in ends if end <= lent), default=0)
            gaps.append(event.started - last)
            lent = 0
    if not gaps:
        raise RuntimeError("nothing was handed over")
    return gaps


def _entries(folder: Path, name: str) -> list[tuple[int, object]]:
    path = next(folder.glob(f"{name}.*"))
    return [(now, event) for now, event, _ in Recording(path).entries()]


def by_layer(runs: int) -> Table:
    """The real engine and wire; the link lets the blocks through in the time of the prefill."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tercet"
    config = TreeConfig(model="smollm2", cache_folder=str(cache), runtime=RuntimeConfig())
    opened = open_configured(config)
    executable = compile_model(opened.model, opened.device, opened.options)
    blocks = TOKENS // BLOCK_TOKENS
    source, target = (kv_memory(executable, blocks + 1) for _ in range(2))
    engine = build_engine(executable, shape=opened.model.shape, memory=source, max_slots=1)
    layers = opened.model.shape.num_layers
    prefill = [_prefill(engine, step=1 + 10 * run) for run in range(3)]
    alone_s = middle(prefill)
    size = blocks * source.layout.block_bytes
    shown, hidden, links = [], [], []
    for run in range(runs):
        link = _Link(source, target, layers=layers, bytes_per_s=size / alone_s)
        links.append(link.alone())
        ended, arrived = link.run(engine, step=1000 + 10 * run)
        shown.append(arrived - ended)
        hidden.append(1 - max(0.0, arrived - ended) / links[-1])
        link.close()
    return Table(
        title="By layer: a link on which the whole takes as long as the prefill",
        command="",
        columns=(
            "prefill alone, ms",
            "blocks, MB",
            "link alone, ms",
            "exposed, ms",
            "range",
            "hidden",
        ),
        rows=[
            (
                1000 * alone_s,
                size / 1e6,
                1000 * middle(links),
                1000 * middle(shown),
                spread([1000 * one for one in shown]),
                f"{middle(hidden):.0%}",
            )
        ],
        bars=(Bar(what="hidden by layer", value=middle(hidden), bound=0.7, at_least=True),),
        note=(
            f"SmolLM2, {TOKENS:,} tokens in steps of {CHUNK}: the engine of a prefill executor "
            "with its layer clock, the data server with a limit on its bandwidth, the TCP wire. "
            "Exposed: from the end of the last step to the last byte."
        ),
    )


def _prefill(engine: Engine, *, step: int) -> float:
    """Seconds that all chunks take; their blocks are the first of the arena."""
    rand = np.random.default_rng(step)
    task = Task(
        id=TaskId(1),
        model="m",
        prompt=tuple(rand.integers(100, 40_000, TOKENS).tolist()),
        sampling=SamplingParameters(max_tokens=1, temperature=0.0, seed=0),
    )
    table = np.arange(TOKENS // BLOCK_TOKENS, dtype="<i4").tobytes()
    began = time.perf_counter()
    for number in range(TOKENS // CHUNK):
        first = number == 0
        engine.run(
            StepPlan(
                step=step + number,
                opens=(SlotOpening(slot=0, task=task, blocks=table),) if first else (),
                slots=_i4(0),
                rows=_i4(CHUNK),
                samples=b"\0",
                growth=_i4(0),
            )
        )
    seconds = time.perf_counter() - began
    engine.run(StepPlan(step=step + TOKENS // CHUNK, closes=(0,)))
    return seconds


class _Link:
    """One hand-over over TCP while the engine computes."""

    def __init__(
        self, source: AddressRange, target: AddressRange, *, layers: int, bytes_per_s: float
    ) -> None:
        self._layout = source.layout
        self._layers = layers
        regions = Regions((arena_region(source, "p/kv/0", 0),))
        self._server = TcpServer(regions, SECRET, limits=Limits(bytes_per_s=bytes_per_s))
        address = f"127.0.0.1:{self._server.serve()}"
        own = Regions((arena_region(target, "d/kv/1", 0, writable=True),))
        self._wire = TcpWire(own, lambda _: address, secret=SECRET)

    def run(self, engine: Engine, *, step: int) -> tuple[float, float]:
        """(when the last step ended, when the last byte was there)."""
        moves = [
            self._move(chunk, layer, step=step + chunk)
            for chunk in range(TOKENS // CHUNK)
            for layer in range(self._layers)
        ]
        ended = [0.0]

        def compute() -> None:
            _prefill(engine, step=step)
            ended[0] = time.perf_counter()

        computing = threading.Thread(target=compute)
        with ThreadPoolExecutor(WIRES) as pool:
            computing.start()
            carried = [pool.submit(self._wire.carry, move) for move in moves]
            for one in carried:
                one.result()
            arrived = time.perf_counter()
        computing.join()
        return ended[0], arrived

    def alone(self) -> float:
        """Seconds that all layers take over the link when all of them are there."""
        began = time.perf_counter()
        with ThreadPoolExecutor(WIRES) as pool:
            moves = [
                self._move(chunk, layer, step=0)
                for chunk in range(TOKENS // CHUNK)
                for layer in range(self._layers)
            ]
            list(pool.map(self._wire.carry, moves))
        return time.perf_counter() - began

    def close(self) -> None:
        self._wire.close()
        self._server.close()

    def _move(self, chunk: int, layer: int, *, step: int) -> Move:
        per_chunk = CHUNK // BLOCK_TOKENS
        units = np.arange(chunk * per_chunk, (chunk + 1) * per_chunk, dtype="<i4").tobytes()
        part = self._layout.block_bytes // self._layers
        start = self._layout.directory_bytes + layer * part

        def strip(memory: str) -> Strip:
            return Strip(memory, start, self._layout.block_bytes, part, units)

        return Move(
            ticket=0,
            source=strip("p/kv/0"),
            target=strip("d/kv/1"),
            part_bytes=part,
            check=None,
            step=step,
            layer=layer + 1,
        )


def _i4(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


if __name__ == "__main__":
    main()
