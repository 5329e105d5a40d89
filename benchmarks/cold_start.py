"""From the start of a process to the first token on its standard output, and where the time goes.

    python -m benchmarks.cold_start [--runs 15] [--llama PROGRAM] [--write]

Files, images and vocabularies are in place, and Python's compiled modules too. Every run is a fresh
process. A shared machine makes some runs slow and none quick: the least of all runs tells most, and
the processor's time, user and system of all threads, more than the clock.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from benchmarks.machine import heading
from benchmarks.models import checkpoint_file
from benchmarks.report import Bar, Table, middle
from benchmarks.trees import TERCET

REPORT = Path(__file__).parents[1] / "docs" / "benchmarks" / "cold-start.md"
COMMAND = "python -m benchmarks.cold_start"
RUNS = 15
BAR_S = 0.5
FORMS = {"auto": "the file's blocks", "int8": "INT8", "none": "BF16"}
NOTES = {
    "interpreter": "Python itself and what the environment loads at its start",
    "command line": "click, options, configuration",
    "NumPy": "arrays, with OpenBLAS kept to one thread",
    "our modules": "machines, engine, models, checks of requests; tokenizers' library",
    "open": "the device; the file's head, from memory; program; image mapped, all its pages",
    "compile": "the program lowered to native operations, threads started",
    "tokenizer": "the vocabulary mapped; for a chat jinja2 and the template",
    "memory and machines": "KV memory reserved, job executor, task executor, slots",
    "first token": "prompt tokenized by a tokenizer of its own, prefill, token drawn, text",
}
STAGES = """
import sys, time
began = int(sys.argv[1]); quantization, chat = sys.argv[2], sys.argv[3] == "chat"
found = []; last = [began, 0]
def over(name):
    now = [time.monotonic_ns(), time.process_time_ns()]
    found.append((name, now[0] - last[0], now[1] - last[1])); last[:] = now
over("interpreter")
import tercet.cli.main, tercet.cli.run
from tercet.cli.compose import local_config
given = {"device": None, "quantization": quantization, "kv_dtype": None, "threads": None}
config = local_config("smollm2", {**given, "assignments": ()})
tercet.cli.run._hurry()
over("command line")
import numpy
over("NumPy")
from tercet.runtime.solo import open_solo
over("our modules")
solo = open_solo(config, chats=chat, over=over)
said = {"messages": [{"role": "user", "content": "Hello"}]} if chat else {"prompt": "Hello"}
print(next(solo.answer({"max_tokens": 2, "temperature": 0, **said}, chat=chat)), flush=True)
over("first token")
import json; print(json.dumps(found))
"""


@click.command()
@click.option("--runs", default=RUNS, show_default=True)
@click.option("--llama", type=click.Path(path_type=Path), help="`llama-completion`, to compare.")
@click.option("--write", is_flag=True, help=f"Write docs/benchmarks/{REPORT.name} too.")
def main(runs: int, llama: Path | None, *, write: bool) -> None:
    """Measure cold starts of `tercet run`."""
    with tempfile.TemporaryDirectory() as compiled:
        environment = _environment(Path(compiled))
        tables = [whole(runs, environment, llama), budget(runs, environment)]
    lines = ["# Cold starts", "", f"Made by `{COMMAND} --write`.", "", *heading(), ""]
    for table in tables:
        lines += table.lines()
    text = "\n".join(lines)
    click.echo(text)
    if write:
        REPORT.write_text(text)


def whole(runs: int, environment: Mapping[str, str], llama: Path | None) -> Table:
    """The command as a person starts it."""
    commands = {
        f"`tercet run`, {form}": [TERCET, "run", "smollm2", "Hello", "--raw", *_asked(quantization)]
        for quantization, form in FORMS.items()
    }
    commands["`tercet run`, a chat"] = [TERCET, "run", "smollm2", "Hello", *_asked("auto")]
    if llama is not None:
        model = ["-m", str(checkpoint_file()), "-p", "Hello", "-n", "1"]
        commands["`llama-completion`"] = [
            *(str(llama), *model),
            *("-no-cnv", "--no-display-prompt", "--no-warmup"),
        ]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(runs + 1):
        for name, command in commands.items():
            found[name].append(first_output(command, environment))
    rows: list[tuple[str | float, ...]] = []
    bars = []
    for name, all_runs in found.items():
        walls, cpus = zip(*all_runs[1:], strict=True)  # the first makes what is missing
        rows.append((name, min(walls), middle(walls), min(cpus)))
        if name.startswith("`tercet"):
            bars.append(Bar(what=name, value=min(walls), bound=BAR_S, unit="s"))
    return Table(
        title="First output of a fresh process",
        command=COMMAND,
        columns=("command", "least (s)", "median (s)", "processor, whole run (s)"),
        rows=rows,
        bars=bars,
        note=f"One token. {runs} runs, the commands by turns.",
    )


def budget(runs: int, environment: Mapping[str, str]) -> Table:
    """What each stage takes, in one process that does what the command does."""
    columns: dict[str, dict[str, tuple[float, float]]] = {}
    for way, quantization in (("raw", "auto"), ("chat", "auto"), ("raw", "none")):
        form = f"{way}, {FORMS[quantization]}"
        least: dict[str, tuple[float, float]] = {}
        for _ in range(runs):
            for name, wall_ns, cpu_ns in stages(quantization, way, environment):
                wall, cpu = least.get(name, (wall_ns, cpu_ns))
                least[name] = min(wall, wall_ns), min(cpu, cpu_ns)
        columns[form] = least
    first = next(iter(columns.values()))
    rows: list[tuple[str | float, ...]] = [
        (name, *(value / 1e6 for found in columns.values() for value in found[name]))
        for name in first
    ]
    totals = [
        sum(found[name][at] for name in found) / 1e6 for found in columns.values() for at in (0, 1)
    ]
    names = [f"{form}{what}" for form in columns for what in ("", "; processor")]
    explained = "; ".join(f"{name}: {text}" for name, text in NOTES.items())
    return Table(
        title="Where the time goes (ms)",
        command=COMMAND,
        columns=("stage", *names),
        rows=[*rows, ("sum", *totals)],
        note=f"The least of {runs} runs of each stage. {explained}.",
    )


def stages(
    quantization: str, way: str, environment: Mapping[str, str]
) -> list[tuple[str, int, int]]:
    """(stage, nanoseconds of the clock, of the processor) of a fresh process."""
    began = str(time.monotonic_ns())
    command = [sys.executable, "-c", STAGES, began, quantization, way]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [(name, wall, cpu) for name, wall, cpu in json.loads(output.stdout.splitlines()[-1])]


def first_output(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Seconds until the first byte of output; of processor time until the end."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    if process.stdout is None:
        raise RuntimeError("a command without a pipe")
    got = os.read(process.stdout.fileno(), 1)
    seconds = time.perf_counter() - began
    process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if not got or process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime


def _asked(quantization: str) -> list[str]:
    return ["--max-tokens", "1", "--quantization", quantization]


def _environment(compiled: Path) -> dict[str, str]:
    """As most people have it: compiled modules are kept, nothing is said of threads."""
    unwanted = ("PYTHONDONTWRITEBYTECODE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return {**kept, "PYTHONPYCACHEPREFIX": str(compiled)}


if __name__ == "__main__":
    main()
