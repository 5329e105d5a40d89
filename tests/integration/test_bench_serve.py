"""`tercet bench serve` against a real tree on the cost device, and against nobody."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tercet.base.errors import Invalid
from tercet.cli.bench import command
from tercet.runtime.config import RuntimeConfig, TreeConfig
from tercet.runtime.tree import Tree, start_tree


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    config = TreeConfig(
        model="cost:tiny",
        cache_folder=str(tmp_path_factory.mktemp("models")),
        served_names=("tiny",),
        runtime=RuntimeConfig(port=0, kv_cache_memory_bytes=4 << 20),
    )
    tree = start_tree(config, timeout_s=60)
    yield tree
    tree.close()


def bench(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(command, ["serve", "--url", url, "--vocab", "260", *arguments])


def summary_of(url: str, folder: Path, *arguments: str) -> dict:
    result = bench(url, "--output-json", str(folder / "out.json"), *arguments)
    assert result.exception is None, result.output
    return json.loads((folder / "out.json").read_bytes())


def test_a_closed_loop_counts_every_token(tree: Tree, tmp_path: Path) -> None:
    arguments = ("--num-prompts", "24", "--input-len", "20", "--output-len", "9")
    summary = summary_of(tree.url, tmp_path, *arguments, "--max-concurrency", "4")
    assert summary["num_failed"] == 0
    assert summary["prompt_tokens"] == 24 * 20
    assert summary["output_tokens"] == 24 * 9
    assert summary["peak_concurrency"] <= 4
    assert 0 < summary["ttft_ms"]["p50"] <= summary["e2el_ms"]["p50"]
    assert summary["goodput_requests_per_s"] is None


def test_an_open_loop_with_objectives(tree: Tree, tmp_path: Path) -> None:
    arguments = ("--num-prompts", "12", "--input-len", "8", "--output-len", "4")
    goodput = ("--goodput", "ttft:60000", "--goodput", "e2el:60000")
    summary = summary_of(tree.url, tmp_path, *arguments, "--request-rate", "200", *goodput)
    assert summary["num_failed"] == 0
    assert summary["goodput_requests_per_s"] == pytest.approx(summary["requests_per_s"])
    strict = summary_of(tree.url, tmp_path, *arguments, "--goodput", "e2el:0.0001")
    assert strict["goodput_requests_per_s"] == 0


def test_a_trace_is_replayed(tree: Tree, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    rows = [f"2023-11-16 18:15:46.{digit}000000,{20 + digit},{3 + digit}" for digit in range(8)]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    summary = summary_of(tree.url, tmp_path, "--trace", str(path), "--trace-speed", "20")
    assert summary["num_requests"] == 8
    assert summary["num_failed"] == 0
    assert summary["prompt_tokens"] == sum(20 + digit for digit in range(8))
    assert summary["output_tokens"] == sum(3 + digit for digit in range(8))


def test_refusals_are_counted_by_what_the_server_said(tree: Tree) -> None:
    result = bench(tree.url, "--num-prompts", "3", "--model", "another")
    assert isinstance(result.exception, Invalid)
    assert "3 x HTTP 404 model_not_found" in result.output


def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    assert "no server that lists its models" in str(bench(url).exception)
    result = bench(url, "--num-prompts", "2", "--model", "tiny")
    assert "2 x ConnectionRefusedError" in result.output
