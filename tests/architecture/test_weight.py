"""What is light stays light: commands and processes import only what they need.

Counted in modules, not in seconds or bytes: `tercet --help` in less than 0.2 s, `import tercet` in
less than 0.05 s and a supervisor of less than 40 MB are what these sets bring.
"""

import subprocess
import sys

import pytest

LIGHT = {
    "tercet": {"tercet"},
    "tercet.cli.main": {"click", "tercet"},
    "tercet.runtime.supervisor": {"msgspec", "setproctitle", "tercet", "typing_extensions"},
    "tercet.cli.serve": {"click", "msgspec", "setproctitle", "tercet", "typing_extensions"},
    "tercet.cli.run": {"click", "msgspec", "tercet", "typing_extensions"},
    "tercet.runtime.solo": {"msgspec", "numpy", "tercet", "tokenizers", "typing_extensions"},
}
"""Module: the packages beyond the standard library that its import may bring."""

SLOW_OF_PYTHON = {
    "tercet": {"asyncio", "dataclasses", "inspect"},
    "tercet.cli.main": {"asyncio", "difflib", "email", "http", "multiprocessing", "urllib.request"},
    "tercet.cli.run": {"asyncio", "difflib", "logging", "subprocess", "tomllib"},
    "tercet.runtime.solo": {
        *("asyncio", "concurrent.futures", "difflib", "logging", "secrets", "shutil", "ssl"),
        *("socket", "subprocess", "tempfile", "tomllib", "zipfile"),
    },
}
"""Modules of Python itself that cost what the command has to spend."""


def brought(module: str) -> list[str]:
    """Every module that the import brings into a fresh interpreter."""
    script = f"import sys; own = set(sys.modules); import {module}; print(*set(sys.modules) - own)"
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("module", LIGHT)
def test_an_import_brings_only(module: str) -> None:
    packages = {name.partition(".")[0] for name in brought(module)}
    assert packages - sys.stdlib_module_names <= LIGHT[module]


@pytest.mark.parametrize("module", SLOW_OF_PYTHON)
def test_an_import_leaves_out(module: str) -> None:
    assert not {*brought(module)} & SLOW_OF_PYTHON[module]


def test_a_single_answer_loads_one_reader_and_no_server() -> None:
    """`tercet run` shall have its first token in less time than other engines take to load."""
    ours = {name for name in brought("tercet.runtime.solo") if name.startswith("tercet.")}
    servers = {"front", "supervisor", "agent", "executor", "driver", "peers", "tree", "zygote"}
    unused = {f"tercet.runtime.{name}" for name in servers}
    unused |= {"tercet.models.checkpoints.huggingface", "tercet.text.chat", "tercet.text.load"}
    unused |= {"tercet.devices.reference.device", "tercet.cluster_manager.machine"}
    assert not ours & unused


def test_help_needs_no_command() -> None:
    ours = {name for name in brought("tercet.cli.main") if name.startswith("tercet.")}
    assert ours == {"tercet.base", "tercet.base.errors", "tercet.cli", "tercet.cli.main"}


def test_the_supervisor_loads_no_muscle() -> None:
    """Only configuration comes from the packages that compute and serve."""
    muscle = ("tercet.api.", "tercet.devices.", "tercet.engine", "tercet.models", "tercet.text")
    ours = {name for name in brought("tercet.runtime.supervisor") if name.startswith(muscle)}
    assert ours == {"tercet.api.config", "tercet.devices.cost", "tercet.devices.cost.config"}
