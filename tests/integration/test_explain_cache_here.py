"""`tercet explain cache` on this machine: copies by memory, TCP and a disk, and a model's steps."""

import msgspec
import pytest
from click.testing import CliRunner

from tercet.base.errors import Invalid
from tercet.cli import measured_ways
from tercet.cli.explain import command


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(measured_ways, "LARGE", 1 << 20)


def test_this_machine_is_measured(tmp_path):
    result = CliRunner().invoke(command, ["cache", "--disk", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    rows = msgspec.json.decode(result.output)
    assert [row["way"]["source"] for row in rows] == ["dram", "DRAM", "ssd"]
    assert all(row["way"]["bytes_per_s"] > 0 and row["pays_from"] is None for row in rows)
    assert not list(tmp_path.iterdir()), "the file is gone"


def test_a_model_is_weighed_against_it():
    result = CliRunner().invoke(command, ["cache", "random:llama"])
    assert result.exit_code == 0, result.output
    assert "tokens" in result.output


def test_a_folder_that_cannot_be_measured_is_said():
    result = CliRunner().invoke(command, ["cache", "--disk", "/proc/none"])
    assert isinstance(result.exception, Invalid)
    assert result.exception.sentence.startswith("/proc/none cannot be measured")


def test_what_this_machine_can_do_is_still_explained():
    result = CliRunner().invoke(command, ["--json"])
    assert result.exit_code == 0, result.output
    assert msgspec.json.decode(result.output)["model"] is None
