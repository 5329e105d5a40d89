"""The house keeps its rules, and every rule bites."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import checks
import pytest
from rules import LINES_PER_FILE_MAX, SOURCE, TOO_LONG
from source import Module, imports, modules, modules_of_tests

ROOT = SOURCE.parents[1]
Rule = Callable[[Module], Iterator[str]]


@pytest.mark.parametrize("rule", checks.RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps(rule: Rule) -> None:
    problems = [problem for module in modules() for problem in rule(module)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("rule", [checks.file_length, checks.history], ids=lambda r: r.__name__)
def test_the_tests_keep(rule: Rule) -> None:
    problems = [problem for module in modules_of_tests() for problem in rule(module)]
    assert not problems, "\n".join(problems)


def test_modules_of_tests_have_names_of_their_own() -> None:
    """Without packages pytest collects each name once."""
    seen: dict[str, Path] = {}
    twice = [
        f"{module.path} and {seen[module.name]}"
        for module in modules_of_tests()
        if module.name != "conftest" and seen.setdefault(module.name, module.path) != module.path
    ]
    assert not twice, "\n".join(twice)


def test_modules_import_without_cycles() -> None:
    assert not (cycle := _cycle(_graph(modules()))), " -> ".join(cycle)


def test_exceptions_still_exist_and_still_need_to() -> None:
    stale = [
        shown
        for shown in TOO_LONG
        if not (ROOT / shown).exists()
        or (ROOT / shown).read_text().count("\n") <= LINES_PER_FILE_MAX
    ]
    assert not stale, f"remove from TOO_LONG: {stale}"


BROKEN = [
    (checks.layers, "cache.tree", "from tercet.engine import build"),
    (checks.layers, "cache.tree", "from .blocks import Block"),
    (checks.layers, "cache.tree", "def f() -> None:\n    from tercet.base import ids"),
    (checks.layers, "sim.world", "from tercet.runtime import driver"),
    (checks.layers, "attic.old", "from tercet.base import ids"),
    (checks.outside_world, "scheduling.queue", "import time"),
    (checks.outside_world, "routing.view", "from random import choice"),
    (checks.outside_world, "job_executor.machine", "import logging"),
    (checks.outside_world, "node_agent.machine", "import socket"),
    (checks.impure_calls, "cache.tree", "print(1)"),
    (checks.impure_calls, "cache.tree", "order = {1, 2}"),
    (checks.catch_all, "api.app", "try:\n    f()\nexcept Exception:\n    pass"),
    (checks.catch_all, "api.app", "try:\n    f()\nexcept:\n    pass"),
    (checks.global_state, "api.app", "def f() -> None:\n    global x\n    x = 1"),
    (checks.environment, "engine.build", "import os\nx = os.environ['A']"),
    (checks.names, "api.utils", "x = 1"),
    (checks.history, "api.app", "# TO" + "DO later"),
    (checks.file_length, "api.app", "x = 1\n" * 401),
    (checks.function_sizes, "api.app", "def f() -> None:\n" + "    x = 1\n" * 70),
    (checks.function_sizes, "api.app", "def f(a, b, c, d, e, f, g): ..."),
    (
        checks.class_sizes,
        "api.app",
        "class A:\n" + "".join(f" def f{i}(): ...\n" for i in range(21)),
    ),
    (checks.package_docstring, "api", "x = 1"),
]


@pytest.mark.parametrize(("rule", "name", "text"), BROKEN)
def test_every_rule_bites(rule: Rule, name: str, text: str) -> None:
    path = SOURCE / (name.replace(".", "/") + (".py" if "." in name else "/__init__.py"))
    assert list(rule(Module(path, name, ast.parse(text), text)))


def test_every_rule_was_tried() -> None:
    assert {rule for rule, _, _ in BROKEN} == set(checks.RULES)


def test_a_cycle_is_found() -> None:
    texts = {"api.a": "import tercet.api.b", "api.b": "import tercet.api.a", "api.c": "x = 1"}
    pair = [Module(Path(name), name, ast.parse(text), text) for name, text in texts.items()]
    assert _cycle(_graph(pair)) == ["api.a", "api.b", "api.a"]


def _graph(everything: list[Module]) -> dict[str, list[str]]:
    names = {module.name for module in everything}
    return {
        module.name: [
            target
            for item in imports(module.tree)
            if not item.late
            and (target := item.target.removeprefix("tercet.")) in names
            and target != module.name
        ]
        for module in everything
    }


def _cycle(graph: dict[str, list[str]]) -> list[str]:
    """The first circle found by depth-first search, its first module repeated at the end."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for following in graph[node]:
            if found := visit(following, [*path, node]):
                return found
        done.add(node)
        return []

    return next((found for node in graph if (found := visit(node, []))), [])
