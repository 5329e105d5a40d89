"""What was read of a GGUF file's head is remembered as long as the file stays as it was."""

import os
from pathlib import Path

import gguf
import numpy as np
import pytest
from small_models import write_gguf

from tercet.base.errors import Invalid
from tercet.models.checkpoints import gguf_file
from tercet.models.checkpoints.gguf_file import open_gguf
from tercet.models.checkpoints.outline import OutlineCache

WORDS = [f"word {index}" for index in range(2000)]


def settled(path: Path) -> Path:
    """A file that was not changed just now: one that was is never remembered."""
    before = path.stat().st_mtime_ns - 10**12
    os.utime(path, ns=(before, before))
    return path


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    # The time of the last change of a file's times cannot be set back.
    monkeypatch.setattr("tercet.models.checkpoints.outline.SETTLE_NS", -1)


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Headers that were read."""
    read: list[Path] = []
    inner = gguf_file.read_header

    def counted(path: Path) -> object:
        read.append(path)
        return inner(path)

    monkeypatch.setattr(gguf_file, "read_header", counted)
    return read


def model(path: Path, words: list[str] = WORDS) -> Path:
    def also(writer: gguf.GGUFWriter) -> None:
        writer.add_array("a.words", words)
        writer.add_array("a.floats", [0.5] * 3000)
        writer.add_float32("a.number", 0.1)
        writer.add_array("a.few", [1, 2, 3])

    return settled(write_gguf(path, also=also))


def test_a_second_opening_reads_nothing_and_says_the_same(
    tmp_path: Path, unread: list[Path]
) -> None:
    path, outlines = model(tmp_path / "a.gguf"), OutlineCache(tmp_path / "outlines")
    first = open_gguf(path, outlines)
    again = open_gguf(path, outlines)
    assert unread == [path]
    assert again.facts().shape == first.facts().shape
    assert again.facts().files == first.facts().files
    for name in first.tensor_names():
        assert again.describe(name) == first.describe(name)
        assert np.array_equal(again.read(name), first.read(name))
    plain, kept = open_gguf(path).facts().tokenizer, again.facts().tokenizer
    assert dict(kept) == dict(plain)  # type: ignore[arg-type]
    assert kept["a.words"] == WORDS  # type: ignore[index]


def test_long_metadata_is_read_only_when_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, outlines = model(tmp_path / "a.gguf"), OutlineCache(tmp_path / "outlines")
    open_gguf(path, outlines)
    size = sum(one.stat().st_size for one in (tmp_path / "outlines").iterdir())
    assert size < sum(map(len, WORDS))
    found = open_gguf(path, outlines).facts().tokenizer
    assert "a.words" in found  # type: ignore[operator]
    path.write_bytes(b"gone")
    with pytest.raises(Invalid, match=r"a\.words"):
        found["a.words"]  # type: ignore[index]


def test_a_file_that_changed_is_read_again(tmp_path: Path, unread: list[Path]) -> None:
    path, outlines = model(tmp_path / "a.gguf"), OutlineCache(tmp_path / "outlines")
    open_gguf(path, outlines)
    model(path, ["other"] * 2000)
    found = open_gguf(path, outlines).facts().tokenizer
    assert unread == [path, path]
    assert found["a.words"] == ["other"] * 2000  # type: ignore[index]


def test_damaged_outlines_and_those_of_other_versions_are_forgotten(
    tmp_path: Path, unread: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, outlines = model(tmp_path / "a.gguf"), OutlineCache(tmp_path / "outlines")
    open_gguf(path, outlines)
    (kept,) = (tmp_path / "outlines").iterdir()
    whole = kept.read_bytes()
    for content in (b"", b"\xc1", whole[:-5], b"\x93" + whole):
        kept.write_bytes(content)
        open_gguf(path, outlines)
    assert len(unread) == 5
    monkeypatch.setattr(gguf_file, "OUTLINE_VERSION", gguf_file.OUTLINE_VERSION + 1)
    open_gguf(path, outlines)
    assert len(unread) == 6


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    outlines = OutlineCache(tmp_path / "file" / "outlines")
    path = model(tmp_path / "a.gguf")
    assert open_gguf(path, outlines).facts() is not None


def test_a_file_that_was_just_written_is_not_remembered(
    tmp_path: Path, unread: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tercet.models.checkpoints.outline.SETTLE_NS", 10**12)
    path, outlines = model(tmp_path / "a.gguf"), OutlineCache(tmp_path / "outlines")
    open_gguf(path, outlines)
    open_gguf(path, outlines)
    assert unread == [path, path]
