"""The table of accuracies and the bars."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.statistics import (
    Estimate,
    accuracy_change,
    mean_estimate,
    perplexity,
    perplexity_change,
    share_estimate,
)
from benchmarks.accuracy.subject import Answers
from benchmarks.report import Bar, Table

COMMAND = "make accuracy DATA=folder"


@dataclass(frozen=True)
class Config:
    """A way to serve the model."""

    name: str
    what: str
    quantization: str
    kv_dtype: str
    perplexity_bar: float | None = None
    """Percent that perplexity may rise by."""
    points_bar: float | None = None
    """Points that an accuracy may fall by."""
    own_checkpoint: bool = False
    """Of the folder that `tercet quantize` wrote, not of the model as it is."""


CONFIGS = (
    Config("bf16", "BF16, KV in BF16", "none", "bf16"),
    Config("int8", "8-bit blocks (`--quantization int8`), KV in BF16", "int8", "bf16", 1.0, 0.7),
    Config("int8-kv8", "8-bit blocks, KV in INT8", "int8", "int8", 1.0, 0.7),
    Config("file", "the file's 4 bits, activations in INT8, KV in BF16", "auto", "bf16", 0.5),
    Config("file-kv8", "the file's 4 bits, activations in INT8, KV in INT8", "auto", "int8"),
    Config("calibrated", "`tercet quantize`, KV in BF16", "auto", "bf16", 1.0, 0.7, True),
    Config("calibrated-kv8", "`tercet quantize`, KV in INT8", "auto", "int8", 1.0, 0.7, True),
)


def accuracy_table(truth: Answers, found: Mapping[str, Answers], asked: str) -> Table:
    """Float32 first, then each configuration with its differences from it."""
    columns = (
        *("", "perplexity", "change, %", "LAMBADA, %", "change, points", "PIQA, %"),
        *("change, points", "KL, nats", "same best token, %"),
    )
    rows: list[tuple[str | float, ...]] = [_truth_row(truth)]
    bars: list[Bar] = []
    for config in CONFIGS:
        if config.name in found:
            row, some = _row(config, found[config.name], truth)
            rows.append(row)
            bars += some
    return Table(
        title="SmolLM2-135M-Instruct, quantized, beside float32",
        command=COMMAND,
        columns=columns,
        rows=rows,
        bars=bars,
        note=asked,
    )


def _truth_row(truth: Answers) -> tuple[str | float, ...]:
    word, way = (_share(right) for right in (truth.word_right, truth.choice_right))
    return ("float32", f"{perplexity(truth.window_nll):.3f}", "", word, "", way, "", "", "")


def _row(
    config: Config, one: Answers, truth: Answers
) -> tuple[tuple[str | float, ...], Sequence[Bar]]:
    change = perplexity_change(one.window_nll, truth.window_nll)
    word = accuracy_change(one.word_right, truth.word_right)
    way = accuracy_change(one.choice_right, truth.choice_right)
    divergence = mean_estimate(one.kl.mean(axis=1))
    row = (
        *(config.what, f"{perplexity(one.window_nll):.3f}", change.text()),
        *(_share(one.word_right), word.text(), _share(one.choice_right), way.text()),
        _interval(divergence, 5),
        f"{100 * one.same_best.mean():.2f}",
    )
    bars = []
    if config.perplexity_bar is not None:
        what = f"{config.what}: perplexity"
        bars.append(Bar(what=what, value=change.value, bound=config.perplexity_bar, unit="%"))
    if config.points_bar is not None:
        bars += [
            Bar(
                what=f"{config.what}: points that {name} falls by",
                value=-estimate.value,
                bound=config.points_bar,
            )
            for name, estimate in (("LAMBADA", word), ("PIQA", way))
        ]
    return row, bars


def _share(right: NDArray[np.bool_]) -> str:
    estimate = share_estimate(right)
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def _interval(estimate: Estimate, digits: int) -> str:
    low, high = f"{estimate.low:.{digits}f}", f"{estimate.high:.{digits}f}"
    return f"{estimate.value:.{digits}f} [{low}, {high}]"
