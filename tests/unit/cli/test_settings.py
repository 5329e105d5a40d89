"""Values from several sources, errors that name the nearest key, and origins."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from tercet.base.errors import Invalid
from tercet.cli.settings import Source, file_source, keys, resolve, set_source
from tercet.runtime.config import TreeConfig


@dataclass(frozen=True, kw_only=True)
class Inner:
    port: int = 8000
    rate: float = 1.5
    keys: tuple[str, ...] = ()
    level: Literal["info", "debug"] = "info"
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.port < 0:
            raise ValueError(f"inner.port is {self.port}, but it must not be negative.")


@dataclass(frozen=True, kw_only=True)
class Outer:
    model: str = "smollm2"
    inner: Inner = field(default_factory=Inner)


def test_what_the_tree_decides_itself_cannot_be_set() -> None:
    with pytest.raises(Invalid, match=r"unknown key 'cluster_manager.groups'"):
        resolve(TreeConfig, [set_source(["cluster_manager.groups=[]"])])


def test_the_last_source_wins_and_is_named() -> None:
    sources = [Source("file", {"inner.port": 1, "model": "a"}), Source("flag", {"inner.port": 2})]
    resolved = resolve(Outer, sources)
    assert resolved.value == Outer(model="a", inner=Inner(port=2))
    assert resolved.origins["inner.port"] == "flag"
    assert resolved.origins["model"] == "file"
    assert resolved.origins["inner.rate"] == "default"


def test_all_keys_are_listed_in_order() -> None:
    assert list(keys(Outer)) == [
        "model",
        "inner.port",
        "inner.rate",
        "inner.keys",
        "inner.level",
        "inner.limit",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("inner.port=7", Inner(port=7)),
        ("inner.rate=2", Inner(rate=2.0)),
        ("inner.keys=secret", Inner(keys=("secret",))),
        ('inner.keys=["a", "b"]', Inner(keys=("a", "b"))),
        ("inner.level=debug", Inner(level="debug")),
        ("inner.limit=3", Inner(limit=3)),
    ],
)
def test_set_reads_a_value_by_its_kind(text: str, expected: Inner) -> None:
    assert resolve(Outer, [set_source([text])]).value.inner == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("inner.prt=7", "did you mean 'inner.port'"),
        ("port=7", "did you mean 'inner.port'"),
        ("inner.port=many", "inner.port = 'many' (--set) is not an integer"),
        ("inner.port=1.5", "is not an integer"),
        ("inner.level=loud", "one of 'info', 'debug'"),
        ("inner.port=-1", "must not be negative"),
        ("inner.port", "KEY=VALUE"),
        ("=1", "KEY=VALUE"),
    ],
)
def test_a_bad_assignment_is_one_clear_sentence(text: str, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        resolve(Outer, [set_source([text])])
    assert words in caught.value.sentence


def test_a_file_is_read_as_toml(tmp_path: Path) -> None:
    path = tmp_path / "tercet.toml"
    path.write_text('model = "b"\n[inner]\nport = 9\n')
    assert resolve(Outer, [file_source(path)]).value == Outer(model="b", inner=Inner(port=9))


@pytest.mark.parametrize("text", ["a = ", "\x00"])
def test_a_broken_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tercet.toml"
    path.write_text(text)
    with pytest.raises(Invalid, match="not TOML"):
        file_source(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot read"):
        file_source(tmp_path / "absent.toml")
