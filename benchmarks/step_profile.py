"""Where each microsecond of a native step goes, beside what memory allows.

    python -m benchmarks.step_profile [--quantization int8] [--streams 1 --streams 32] [--write]

The device times each region of a step (operations between two meetings of its threads). Beside it:
how long as many threads need to read that region's weights, or keys and values, once.
"""

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from benchmarks.machine import heading
from benchmarks.models import NAME, cache
from benchmarks.peers.drivers.worker import random_prompt
from benchmarks.peers.limit import rereads_per_s
from benchmarks.report import Table
from tercet.base.errors import Invalid
from tercet.base.ids import BLOCK_TOKENS
from tercet.devices.choose import choose_device
from tercet.devices.contract import CompileOptions
from tercet.devices.cpu.device import CpuExecutable
from tercet.devices.direct import Direct
from tercet.devices.direct import Sequence as Computed
from tercet.engine.build import compile_model
from tercet.models import OpenedModel, open_model

REPORT = Path(__file__).parents[1] / "docs" / "benchmarks" / "step.md"
CONTEXT = 300
STEPS = 100
COMMAND = "python -m benchmarks.step_profile"
_LAYER = re.compile(r"\blayers\.\d+\.")


@dataclass
class Group:
    """The same region of all layers."""

    microseconds: float = 0.0
    num_bytes: int = 0
    """Of weights, or of keys and values, that it reads in a step."""


@click.command()
@click.option("--quantization", multiple=True, default=("int8", "none", "auto"), show_default=True)
@click.option("--streams", multiple=True, default=(1, 32), type=int, show_default=True)
@click.option("--write", is_flag=True, help=f"Write docs/benchmarks/{REPORT.name} too.")
def main(quantization: Sequence[str], streams: Sequence[int], *, write: bool) -> None:
    """Profile steps of the native device."""
    lines = ["# Where a step's time goes", "", f"Made by `{COMMAND} --write`.", "", *heading(), ""]
    for one in quantization:
        for count in streams:
            lines += profile(one, count).lines()
    text = "\n".join(lines)
    click.echo(text)
    if write:
        REPORT.write_text(text)


def profile(quantization: str, streams: int) -> Table:
    """The table of one setting."""
    device = choose_device("cpu")
    model = open_model(NAME, cache=cache(), packer=device.packer(), quantization=quantization)
    threads = len(os.sched_getaffinity(0))
    executable = compile_model(model, device, CompileOptions(threads=threads))
    if not isinstance(executable, CpuExecutable):
        raise Invalid("the native device was not built.", parameter="device")
    direct = Direct(executable, streams * (CONTEXT + 2 * STEPS) // BLOCK_TOKENS + streams)
    sequences = [Computed() for _ in range(streams)]
    for seed, one in enumerate(sequences):
        direct.run([(one, random_prompt(seed, CONTEXT - STEPS // 2))])
    wall = _steps(direct, sequences, executable)
    kv_bytes = int(np.prod(executable.block_shape)) * CONTEXT // BLOCK_TOKENS * streams
    groups = grouped(executable.timings(), weights_read(model), kv_bytes)
    return table(groups, wall, quantization, streams)


def grouped(
    timings: Sequence[tuple[str, int, int]], weights: Mapping[str, int], kv_bytes: int
) -> dict[str, Group]:
    """Regions that differ by layer alone are one group; microseconds are of a step."""
    groups: dict[str, Group] = {}
    for name, nanoseconds, steps in timings:
        group = groups.setdefault(_LAYER.sub("", name), Group())
        group.microseconds += nanoseconds / max(1, steps) / 1e3
        outputs = re.split(r"[ +]", name)
        group.num_bytes += sum(weights.get(output, 0) for output in outputs)
        if name.startswith("attend ") and not name.endswith(".merge"):
            group.num_bytes += kv_bytes // _num_attends(timings)
    return groups


def weights_read(model: OpenedModel) -> dict[str, int]:
    """Bytes of the matrix that each linear multiplies with, by the name of its output."""
    stored = model.weights()
    return {
        operation.outputs[0]: stored[name].data.nbytes
        for operation in model.program.operations
        for name in operation.inputs[1:2]
        if name in stored and len(stored[name].shape) > 1 and operation.outputs[0] != "embedded"
    }


def table(groups: Mapping[str, Group], wall: float, quantization: str, streams: int) -> Table:
    """Groups in the order of a step, what is left, and the sum."""
    whole = sum(group.num_bytes for group in groups.values())
    rate = rereads_per_s(whole, folder=cache().folder / "limit") * whole / 1e6
    inside = sum(group.microseconds for group in groups.values())
    rows: list[tuple[str | float, ...]] = []
    for name, group in groups.items():
        limit = group.num_bytes / rate
        share = f"{100 * limit / group.microseconds:.0f}" if group.num_bytes else ""
        shown = limit if group.num_bytes else ""
        part = 100 * group.microseconds / wall
        rows.append((name, group.microseconds, f"{part:.1f}", shown, share))
    rows.append(("Python, until the step is called", wall - inside, "", "", ""))
    limit = whole / rate
    rows.append(("**all**", wall, "100", limit, f"{100 * limit / wall:.0f}"))
    return Table(
        title=f"{quantization}, {streams} stream{'s' * (streams > 1)}: {1e6 / wall:,.0f} steps/s",
        command=f"{COMMAND} --quantization {quantization} --streams {streams}",
        columns=("region", "us a step", "%", "reading alone, us", "% of the limit"),
        rows=rows,
        note=(
            f"Contexts of {CONTEXT} tokens, {STEPS} steps; regions of all layers together. Reading "
            f"alone: bytes over {rate / 1e3:.1f} GB/s, what as many threads reread them with."
        ),
    )


def _steps(direct: Direct, sequences: Sequence[Computed], executable: CpuExecutable) -> float:
    """Run the steps, watched; microseconds of one."""
    direct.run([(one, [7]) for one in sequences])
    executable.watch(on=True)
    batches = [direct.batch([(one, [7 + step]) for one in sequences]) for step in range(STEPS)]
    began = time.perf_counter()
    for batch in batches:
        executable.run(batch)
    return (time.perf_counter() - began) / STEPS * 1e6


def _num_attends(timings: Sequence[tuple[str, int, int]]) -> int:
    return sum(name.startswith("attend ") and not name.endswith(".merge") for name, _, _ in timings)


if __name__ == "__main__":
    main()
