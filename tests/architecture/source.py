"""The project's own source as parsed trees."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rules import SOURCE, TESTS


@dataclass(frozen=True)
class Module:
    """One file of the package: its dotted name below `tercet` and its tree."""

    path: Path
    name: str
    tree: ast.Module
    text: str

    @property
    def package(self) -> str:
        return self.name.split(".")[0]

    @property
    def shown(self) -> str:
        return str(self.path.relative_to(SOURCE.parents[1]))


@cache
def modules() -> list[Module]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        relative = path.relative_to(SOURCE).with_suffix("")
        parts = relative.parts[:-1] if relative.name == "__init__" else relative.parts
        text = path.read_text()
        found.append(Module(path, ".".join(parts) or "__init__", ast.parse(text), text))
    return found


@cache
def modules_of_tests() -> list[Module]:
    """The tests' files, this folder aside: it has to name what it bans."""
    paths = [path for path in sorted(TESTS.rglob("*.py")) if path.parent.name != "architecture"]
    texts = [path.read_text() for path in paths]
    return [
        Module(path, path.stem, ast.parse(text), text)
        for path, text in zip(paths, texts, strict=True)
    ]


@dataclass(frozen=True)
class Import:
    target: str
    """Full dotted name."""
    line: int
    late: bool
    """Inside a function, or under TYPE_CHECKING."""


def imports(tree: ast.Module) -> Iterator[Import]:
    yield from _imports(tree, late=False)


def _imports(node: ast.AST, *, late: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for name in child.names:
                yield Import(name.name, child.lineno, late)
        elif isinstance(child, ast.ImportFrom):
            base = child.module or ""
            if child.level:
                base = "tercet.<relative>." + base
            if base == "tercet":
                for name in child.names:
                    yield Import(f"tercet.{name.name}", child.lineno, late)
            else:
                yield Import(base, child.lineno, late)
        else:
            hidden = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            guarded = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            yield from _imports(child, late=late or hidden or guarded)
