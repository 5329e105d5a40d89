"""The comparison's arithmetic: medians, neighbours, best rates, what of a tree is KV."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from benchmarks.peers import loads
from benchmarks.peers.company import gaps_after, slowest_first
from benchmarks.peers.drivers.worker import carry_out, prompt_length, random_prompt
from benchmarks.peers.results import Failure, Load, Measure, Note, Results
from benchmarks.peers.running import arena_bytes, pss_bytes
from benchmarks.peers.systems import BF16, FOUR_BIT, INT8, System
from benchmarks.peers.tables import all_tables, comparison, first_tokens, mixed

from tercet.bench.records import RequestRecord

SMAPS = """\
7f00-7f10 rw-s 00000000 00:01 5    /memfd:tercet-kv-0 (deleted)
Rss:                8 kB
Pss:                4 kB
7f10-7f20 r--p 00000000 00:01 6    /usr/lib/libc.so
Pss:                3 kB
Pss_Dirty:          1 kB
"""


def system(key: str, product: str, form: str) -> System:
    return System(key=key, product=product, form=form, detail=form, worker=())


SYSTEMS = (
    system("tercet-int8", "tercet", INT8),
    system("tercet-auto", "tercet", FOUR_BIT),
    system("tercet-none", "tercet", BF16),
    system("llama-file", "llama.cpp", FOUR_BIT),
    system("llama-q8_0", "llama.cpp", INT8),
    system("openvino-int8-static", "OpenVINO GenAI", INT8),
)


def filled(path: Path, values: dict[tuple[str, str], Sequence[float]]) -> Results:
    results = Results(path)
    results.begin()
    for (key, name), some in values.items():
        for turn, value in enumerate(some):
            results.add(Measure(system=key, name=name, value=value, turn=turn))
    return results


def load(key: str, rate: float, tokens: float, ttft: float = 100.0, *, failed: int = 0) -> Load:
    return Load(
        system=key,
        turn=0,
        rate=rate,
        tokens_per_s=tokens,
        ttft_p95_ms=ttft,
        itl_p95_ms=20.0,
        itl_p50_ms=10.0,
        itl_p99_ms=30.0,
        failed=failed,
    )


def test_what_was_measured_is_there_after_a_new_start(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.jsonl"
    results = filled(path, {("a", "decode 1"): [1.0, 3.0, 2.0]})
    results.add(load("a", 0.5, 10.0))
    results.add(Failure(system="b", reason="gone"))
    results.add(Note(text="- machine"))
    again = Results(path)
    again.read()
    assert again.middle("a", "decode 1") == 2.0
    assert again.has("a", "decode 1", 2)
    assert not again.has("a", "decode 1", 3)
    assert (again.loads, again.failures, again.notes) == (
        results.loads,
        results.failures,
        results.notes,
    )


def test_ratios_are_of_rounds_that_both_have(tmp_path: Path) -> None:
    results = filled(tmp_path / "r", {("a", "x"): [2.0, 4.0, 9.0], ("b", "x"): [1.0, 4.0]})
    assert results.ratios("a", "b", "x") == [2.0, 1.0]
    assert results.best(["a", "b", "c"], "x") == "a"
    assert results.best(["a", "b"], "x", least=True) == "b"
    assert results.best(["c"], "x") is None


def test_each_row_is_against_the_best_of_its_peers(tmp_path: Path) -> None:
    results = filled(
        tmp_path / "r",
        {
            ("tercet-int8", "decode 1"): [200.0, 200.0],
            ("tercet-int8", "limit"): [250.0, 250.0],
            ("llama-q8_0", "decode 1"): [100.0, 100.0],
            ("openvino-int8-static", "decode 1"): [180.0, 160.0],
            ("llama-file", "decode 1"): [500.0],
        },
    )
    table = comparison(results, SYSTEMS)
    assert [row[0] for row in table.rows] == ["1 stream, INT8"]
    assert [(bar.value, bar.holds) for bar in table.bars] == [
        (pytest.approx((200 / 180 + 200 / 160) / 2), False),
        (pytest.approx(0.8), True),
    ]
    assert "80 % of 250" in str(table.rows[0])


def test_first_token_bars_count_the_quickest_way_of_a_peer(tmp_path: Path) -> None:
    results = filled(
        tmp_path / "r",
        {
            ("tercet-int8", "first token, command"): [0.4],
            ("tercet-int8", "first token, worker"): [0.1],
            ("llama-file", "first token, command"): [0.5],
            ("llama-file", "first token, worker"): [0.3],
            ("openvino-int8-static", "first token, worker"): [1.5],
        },
    )
    bars = first_tokens(results, SYSTEMS).bars
    assert [round(bar.value, 3) for bar in bars] == [0.4, 0.75, 3.75]
    assert [bar.holds for bar in bars] == [True, False, True]


def test_the_best_rate_gives_most_tokens_and_loses_no_request() -> None:
    closed, lost = load("a", 0.0, 99.0), load("a", 2.0, 50.0, failed=1)
    some = [closed, lost, load("a", 1.0, 40.0), load("a", 1.5, 45.0)]
    best = loads.best(some)
    assert best is not None
    assert best.rate == 1.5
    assert loads.best([closed]) is None


def test_ours_is_held_to_the_best_peer_at_its_own_rate(tmp_path: Path) -> None:
    results = filled(tmp_path / "r", {})
    for one in (
        load("llama-q8_0", 1.0, 100.0, 500.0),
        load("openvino-int8-static", 1.0, 80.0, 50.0),
        load("tercet-int8", 1.5, 160.0, 400.0),
        load("tercet-int8", 3.0, 300.0, 900.0),
    ):
        results.add(one)
    assert [(bar.value, bar.holds) for bar in mixed(results, SYSTEMS).bars] == [
        (pytest.approx(1.6), True),
        (pytest.approx(0.8), True),
        (pytest.approx(1.0), True),
    ]


def test_a_report_of_nothing_says_so(tmp_path: Path) -> None:
    text = "\n".join(
        line for table in all_tables(filled(tmp_path / "r", {}), SYSTEMS) for line in table.lines()
    )
    assert "nothing was measured" in text


def test_pss_is_summed_and_arenas_are_told_apart() -> None:
    assert pss_bytes(SMAPS) == 7 * 1024
    assert arena_bytes(SMAPS) == 4 * 1024


def test_gaps_count_from_when_all_streams_run() -> None:
    records = [
        RequestRecord(
            scheduled_ns=0,
            arrivals_ns=arrivals,
            ended_ns=0,
            prompt_tokens=1,
            output_tokens=3,
        )
        for arrivals in ((1_000_000, 2_000_000, 9_000_000), (5_000_000, 8_000_000, 9_000_000))
    ]
    assert slowest_first(records) == 5_000_000
    assert gaps_after(records, start=1_500_000) == [7.0, 3.0, 1.0]


def test_workers_make_the_same_prompts_and_refuse_what_they_do_not_know() -> None:
    asked: list[tuple[int, int]] = []

    class Fake:
        def decode(self, prompts: Sequence[list[int]], steps: int) -> float:
            asked.append((len(prompts), len(prompts[0])))
            assert prompts[1] == random_prompt(6, len(prompts[0]))
            return 7.0

        def prefill(self, prompt: list[int]) -> float:
            return len(prompt) / 50

    decode = {"do": "decode", "streams": 2, "context": 300, "steps": 64, "seed": 5}
    assert carry_out(Fake(), decode) == {"tokens_per_s": 7.0}
    assert asked == [(2, 268)]
    assert carry_out(Fake(), {"do": "prefill", "tokens": 100, "seed": 1}) == {"tokens_per_s": 50.0}
    assert prompt_length(3, 64) == 1
    with pytest.raises(ValueError, match="unknown"):
        carry_out(Fake(), {"do": "sing", "seed": 1})
