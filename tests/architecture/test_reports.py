"""docs/reports.md names tests that exist, and each report is named by one of its tests."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from rules import SOURCE, TESTS

PAGE = (SOURCE.parents[1] / "docs" / "reports.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([^|]+) \| [^|]+ \| (`[^|]+`) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
REPORT = re.compile(r"(?:PR)?#\d+")
ROWS = ROW.findall(PAGE)


@cache
def docstrings(path: Path) -> dict[str, str]:
    """Docstrings of a file's tests by name."""
    functions = ast.parse(path.read_text(encoding="utf-8")).body
    return {
        node.name: ast.get_docstring(node) or ""
        for node in functions
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_row_is_read() -> None:
    served = PAGE[: PAGE.index("## Not yet")].splitlines()
    rows = [line for line in served if line.startswith("| ") and not line.startswith("| report")]
    assert len(ROWS) == len(rows) > 30


@pytest.mark.parametrize(("report", "tests"), ROWS, ids=[report for report, _ in ROWS])
def test_the_tests_of_a_report_exist_and_name_it(report: str, tests: str) -> None:
    told = ""
    for file, name in TEST.findall(tests):
        path = TESTS / file
        assert path.is_file(), f"there is no {file}"
        assert name in docstrings(path), f"{file} has no {name}"
        told += docstrings(path)[name]
    for number in REPORT.findall(report):
        assert re.search(rf"{number}\b", told), f"no test of the row names {number}"
