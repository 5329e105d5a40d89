"""What Python costs a token: a device that takes no time, 64 jobs, from the executor to text."""

import json
import time
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from benchmarks import engine_overhead
from benchmarks.pipeline import Split, run
from benchmarks.report import Bar, Table, middle, spread
from benchmarks.trees import Served, serving

JOBS = 64
TOKENS = 2000
TREE_RUNS = 3
PIPELINE_RUNS = 3
PIPELINE_TOKENS = 1000
PROMPT = 16


def overhead() -> Table:
    """Measure the whole tree, then the same objects in one thread with a split of the time."""
    with serving(["smollm2", "--device", "cost", "--log-level", "warning"]) as served:
        _answers(served, 8)
        runs = [_answers(served, TOKENS) for _ in range(TREE_RUNS)]
    rates = [JOBS * TOKENS / seconds for seconds, _ in runs]
    splits = [run(JOBS, PIPELINE_TOKENS) for _ in range(PIPELINE_RUNS)]
    alone = [split.num_tokens / split.total for split in splits]
    return Table(
        title="Python's part: a device that takes no time",
        command="python -m benchmarks --only overhead",
        columns=("64 jobs, greedy", "tokens/s", "range"),
        rows=[
            ("the whole tree, answers over HTTP", middle(rates), spread(rates)),
            ("the same objects in one thread", middle(alone), spread(alone)),
        ],
        bars=(
            Bar(
                what="executor's machine to decoded text, whole tree",
                value=middle(rates),
                bound=20_000,
                unit="tokens/s",
                at_least=True,
            ),
        ),
        note=(
            f"`tercet serve smollm2 --device cost`, {JOBS} requests at once of {PROMPT} token "
            f"ids and {TOKENS:,} new tokens, not streamed: SmolLM2's tokenizer makes the text. "
            "From the first request's start to the last answer's end. The second row counts CPU "
            "time of one thread, in which nothing overlaps."
        ),
        further=(_by_process(runs), _by_part(splits), _engine()),
    )


def _answers(served: Served, tokens: int) -> tuple[float, Mapping[str, float]]:
    """Seconds until all jobs were answered, and the CPU seconds of each process meanwhile."""
    before = served.cpu_seconds()
    began = time.perf_counter()
    with ThreadPoolExecutor(JOBS) as pool:
        list(pool.map(lambda seed: _answer(served, seed, tokens), range(JOBS)))
    seconds = time.perf_counter() - began
    after = served.cpu_seconds()
    return seconds, {name: after[name] - before.get(name, 0.0) for name in after}


def _answer(served: Served, seed: int, tokens: int) -> None:
    body = {
        "model": "smollm2",
        "prompt": [1000 + seed * 101 + place for place in range(PROMPT)],
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": 0,
    }
    request = urllib.request.Request(
        f"{served.url}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        usage = json.load(answer)["usage"]
    if usage["completion_tokens"] != tokens:
        raise RuntimeError(f"{usage} where {tokens} tokens were asked for")


def _by_process(runs: list[tuple[float, Mapping[str, float]]]) -> Table:
    names = [name for name, spent in runs[0][1].items() if spent > 0.005]
    rows = []
    for name in names:
        spent = middle([cpu.get(name, 0.0) for _, cpu in runs])
        share = middle([100 * cpu.get(name, 0.0) / seconds for seconds, cpu in runs])
        rows.append((name, 1e6 * spent / (JOBS * TOKENS), share))
    return Table(
        title="Where the time goes, by process of the tree",
        command="",
        columns=("process", "CPU us a token", "% of a core"),
        rows=rows,
    )


def _by_part(splits: list[Split]) -> Table:
    parts = {
        "engine: slots, batch, made-up tokens, settling": [split.engine for split in splits],
        "task executor's machine: results, cache, plans": [split.task_executor for split in splits],
        "messages to bytes and back": [split.wire for split in splits],
        "job executor's machine and hand-over": [split.job_executor for split in splits],
        "exchange: loop, detokenizer, metering, answers": [split.text for split in splits],
    }
    total = middle([split.total for split in splits])
    tokens = splits[0].num_tokens
    rows = [
        (name, 1e6 * middle(seconds) / tokens, 100 * middle(seconds) / total)
        for name, seconds in parts.items()
    ]
    return Table(
        title="Where the time goes, by part (one thread)",
        command="",
        columns=("part", "us a token", "%"),
        rows=rows,
    )


def _engine() -> Table:
    return Table(
        title="The engine alone, us a step of 64 slots",
        command="python -m benchmarks.engine_overhead",
        columns=engine_overhead.COLUMNS,
        rows=engine_overhead.rows(JOBS),
    )
