"""docs/ARCHITECTURE.md says of packages and files what is so."""

import re

import pytest
from rules import MAY_IMPORT, PURE, SOURCE, TESTS

ROOT = SOURCE.parents[1]
PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
LINES_MAX = 300
ROW = re.compile(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)


def rows() -> dict[str, str]:
    return dict(ROW.findall(PAGE[PAGE.index("## 2.") : PAGE.index("## 3.")]))


def spelled(package: str) -> set[str]:
    """What the page's row says, as the set that the rules hold."""
    words = rows()[package]
    if words.startswith("everything"):
        return {"*"}
    allowed = set(words.split()) - {"nothing", "pure"}
    return allowed | set(PURE) if words.startswith("pure") else allowed


@pytest.mark.parametrize("package", sorted(rows()))
def test_a_package_may_import_what_the_page_says(package: str) -> None:
    ruled = set(MAY_IMPORT[package])
    assert spelled(package) == ({"*"} if "*" in ruled else ruled)


def test_every_package_has_a_row() -> None:
    there = {path.stem for path in SOURCE.iterdir() if path.suffix in ("", ".py")}
    assert rows().keys() == there - {"__init__", "__pycache__"}


def test_files_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`([a-z_0-9/]+/[a-z_0-9A-Z]+\.(?:py|toml|md))", PAGE))
    assert len(named) > 50
    missing = {
        name for name in named if not (SOURCE / name).exists() and not (ROOT / name).exists()
    }
    assert not missing


def test_folders_of_tests_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`tests/([a-z_/]+)`", PAGE))
    assert named
    assert all((TESTS / name).is_dir() for name in named)


def test_the_page_is_short() -> None:
    assert len(PAGE.splitlines()) <= LINES_MAX
