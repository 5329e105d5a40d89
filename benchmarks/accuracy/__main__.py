"""Has float32 (once) and every configuration answer, and prints the table."""

import os
import sys
import time
from pathlib import Path

import click
import msgspec
import numpy as np
import threadpoolctl
from numpy.typing import NDArray

from benchmarks.accuracy.subject import NUM_BLOCKS, Answers, Scoring, Subject
from benchmarks.accuracy.tables import COMMAND, CONFIGS, Config, accuracy_table
from benchmarks.accuracy.tasks import WINDOW, Size, Tasks, kl_rows, make_tasks
from benchmarks.accuracy.texts import read_texts
from benchmarks.accuracy.truth import is_whole, keep_truth, read_truth, truth_key
from benchmarks.machine import heading
from benchmarks.models import NAME, cache, opened
from benchmarks.report import Table, skipped
from tercet.base.errors import Invalid
from tercet.devices.choose import choose_device
from tercet.devices.contract import CompileOptions, Device
from tercet.devices.direct import Direct
from tercet.devices.reference import ReferenceDevice
from tercet.engine.build import compile_model
from tercet.models import open_model
from tercet.text.load import load_codec

RESULTS = Path(__file__).parents[2] / "docs" / "benchmarks" / "accuracy.md"
TITLE = "SmolLM2-135M-Instruct, quantized, beside float32"


class Options(msgspec.Struct, frozen=True):
    """The command line, as click parsed it."""

    data: str
    config: tuple[str, ...]
    checkpoint: Path | None
    device: str
    windows: int
    lambada: int
    piqa: int
    threads: int | None
    truth: bool
    write: bool


@click.command()
@click.option("--data", default="", metavar="FOLDER", help="Where the texts are.")
@click.option(
    "--config", multiple=True, type=click.Choice([one.name for one in CONFIGS]), help="Repeat."
)
@click.option("--checkpoint", type=click.Path(path_type=Path), help="What `tercet quantize` wrote.")
@click.option("--device", default="auto", show_default=True)
@click.option("--windows", default=Size.windows, show_default=True, help=f"Of {WINDOW} tokens.")
@click.option("--lambada", default=Size.lambada, show_default=True)
@click.option("--piqa", default=Size.piqa, show_default=True)
@click.option("--threads", type=click.IntRange(1), help="All cores without.")
@click.option("--truth", is_flag=True, help="Compute what float32 says, nothing else.")
@click.option("--write", is_flag=True, help=f"Write docs/benchmarks/{RESULTS.name} too.")
def main(**options: object) -> None:
    """Measure what quantization costs."""
    given = msgspec.convert(options, Options)
    lines = ["# Accuracy of quantized models", "", f"Made by `{COMMAND}`.", ""]
    lines += [*heading(), "", *table(given).lines()]
    text = "\n".join(lines)
    click.echo(text)
    if given.write and given.data:
        RESULTS.write_text(text)


def table(given: Options) -> Table:
    """The table, or why there is none."""
    if not given.data:
        return skipped(TITLE, COMMAND, "no texts are given (DATA=folder)")
    texts = read_texts(Path(given.data))
    size = Size(given.windows, given.lambada, given.piqa)
    model = opened()
    codec = load_codec(model.tokenizer_source)
    tasks = make_tasks(texts, lambda text: codec.encode(text, special=False, add_bos=False), size)
    folder = cache().folder / "accuracy"
    key = truth_key(model.fingerprint, repr(tasks))
    if not is_whole(folder, key):
        exact = prepared(NAME, "none", "auto", ReferenceDevice(), threads=given.threads)
        keep_truth(folder, key, exact, tasks)
    truth, distributions = read_truth(folder, key)
    answers = {} if given.truth else _answers(given, tasks, distributions)
    return accuracy_table(truth, answers, _asked(tasks))


def prepared(
    source: str, quantization: str, kv_dtype: str, device: Device, *, threads: int | None
) -> Subject:
    """The model on the device, ready to answer."""
    threads = threads or len(os.sched_getaffinity(0))
    threadpoolctl.threadpool_limits(limits=threads)
    options = CompileOptions(kv_dtype=kv_dtype, threads=threads)  # type: ignore[arg-type]
    device.check(options)
    packer = device.packer()
    model = open_model(source, cache=cache(), packer=packer, quantization=quantization)
    executable = compile_model(model, device, options)
    if not isinstance(executable, Scoring):
        raise TypeError(f"{device.name} does not give its logits")
    name = f"{quantization}, KV {kv_dtype}"
    return Subject(Direct(executable, NUM_BLOCKS), executable, name, model.shape.vocab)


def _answers(given: Options, tasks: Tasks, truth: NDArray[np.float32]) -> dict[str, Answers]:
    found = {}
    for config in CONFIGS:
        source = _source(config, given)
        if source and (not given.config or config.name in given.config):
            began = time.perf_counter()
            device = choose_device(given.device)
            subject = prepared(
                source, config.quantization, config.kv_dtype, device, threads=given.threads
            )
            found[config.name] = subject.answer(tasks, truth)
            print(f"... {config.name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return found


def _source(config: Config, given: Options) -> str:
    """The model of the configuration; empty where it was not given."""
    if not config.own_checkpoint:
        return NAME
    return str(given.checkpoint.absolute()) if given.checkpoint else ""


def _asked(tasks: Tasks) -> str:
    return (
        f"WikiText-2 test, detokenized, {len(tasks.windows)} windows of {WINDOW} tokens spread "
        f"over it, perplexity a token; LAMBADA, {len(tasks.words):,} passages, the last word right "
        f"if all its tokens are the likeliest; PIQA, {len(tasks.choices):,} questions, "
        "log-likelihood for each byte of the answer. KL of the next-token distribution from "
        f"float32 and the share of equal likeliest tokens: {len(kl_rows())} places of each "
        "window. In brackets: 95 % bootstrap intervals, of changes over pairs. Float32 is the "
        "reference device on the file's numbers."
    )


if __name__ == "__main__":
    try:
        main()
    except (Invalid, RuntimeError) as error:
        sys.exit(f"benchmarks.accuracy: {error}")
