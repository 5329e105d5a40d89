"""Tokens a second beside transformers: both sides live at once and take turns."""

import importlib.util

from benchmarks.report import Bar, Table, middle, skipped, spread
from benchmarks.side import Side

TITLE = "Throughput beside transformers (SmolLM2-135M, float32, both cores)"
COMMAND = "python -m benchmarks --only throughput"
CONTEXT = 284
CASES = {1: (5, 24, 1.3), 8: (4, 12, None), 32: (4, 8, 1.1)}
"""Streams: rounds, steps of each, the bar."""
PREFILL = 1024
PREFILL_ROUNDS = 3
QUIET = {"PYTHONWARNINGS": "ignore"}
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def throughput() -> Table:
    """Alternate the sides over rounds; medians, and ratios of rounds that were neighbours."""
    if not (importlib.util.find_spec("torch") and importlib.util.find_spec("transformers")):
        return skipped(TITLE, COMMAND, "torch and transformers are not installed (test group)")
    rows: list[tuple[str | float, ...]] = []
    bars = []
    with (
        Side("benchmarks.decode_tercet", ONE_THREAD) as ours,
        Side("benchmarks.decode_transformers", QUIET) as theirs,
    ):
        agreed = _same_token(ours, theirs)
        for streams, (rounds, steps, bound) in CASES.items():
            mine, other = _decode(ours, theirs, streams=streams, rounds=rounds, steps=steps)
            name = f"{streams} stream{'s' * (streams > 1)}"
            rows.append(_row(name, mine, other))
            if bound is not None:
                ratio = middle(_ratios(mine, other))
                what = f"{name} beside transformers"
                bars.append(Bar(what=what, value=ratio, bound=bound, unit="x", at_least=True))
        mine, other = _prefill(ours, theirs)
        rows.append(_row(f"prefill of {PREFILL:,}", mine, other))
    return Table(
        title=TITLE,
        command=COMMAND,
        columns=("tokens/s", "tercet", "range", "transformers", "range", "ratio", "range"),
        rows=rows,
        bars=bars,
        note=(
            f"Prompts of {CONTEXT} random tokens, greedy; a round is {CASES[1][1]}, "
            f"{CASES[8][1]} or {CASES[32][1]} steps, rounds of the sides alternate, a value "
            "is a round's median step. Ours: the task executor's machine and engine with planning "
            "and sampling in turn; theirs: `model(...)` with a DynamicCache and argmax, eager "
            "attention, the file's weights dequantized to float32. First token after the prompt of "
            f"{PREFILL:,}: {agreed}."
        ),
    )


def _decode(
    ours: Side, theirs: Side, *, streams: int, rounds: int, steps: int
) -> tuple[list[float], list[float]]:
    """Tokens a second of both, a value for each round."""
    found: tuple[list[float], list[float]] = ([], [])
    sides = (ours, theirs)
    for side in sides:
        side.ask(do="open", streams=streams, context=CONTEXT)
        side.ask(do="decode", steps=2)
    for _ in range(rounds):
        for side, values in zip(sides, found, strict=True):
            values.append(streams / middle(side.seconds(do="decode", steps=steps)))
    for side in sides:
        side.ask(do="close")
    return found


def _prefill(ours: Side, theirs: Side) -> tuple[list[float], list[float]]:
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(PREFILL_ROUNDS):
        for side, values in zip((ours, theirs), found, strict=True):
            command = {"do": "prefill", "seed": 1000 + number, "tokens": PREFILL}
            values.append(PREFILL / side.seconds(**command)[0])
    return found


def _same_token(ours: Side, theirs: Side) -> str:
    """Both warm, and the same model."""
    tokens = [side.ask(do="prefill", seed=999, tokens=PREFILL)["token"] for side in (ours, theirs)]
    return "the same on both sides" if tokens[0] == tokens[1] else f"DIFFERENT ({tokens})"


def _ratios(mine: list[float], other: list[float]) -> list[float]:
    return [a / b for a, b in zip(mine, other, strict=True)]


def _row(name: str, mine: list[float], other: list[float]) -> tuple[str | float, ...]:
    ratios = _ratios(mine, other)
    ratio = f"{middle(ratios):.2f}"
    return name, middle(mine), spread(mine), middle(other), spread(other), ratio, spread(ratios)
