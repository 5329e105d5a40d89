"""Each rule as a function from a module to its problems, so that a rule itself can be tried."""

import ast
import re
from collections.abc import Iterator

from rules import (
    BANNED_CALLS_IN_PURE,
    BANNED_NAMES,
    BANNED_WORDS,
    CATCH_ALL_ALLOWED,
    LINES_PER_FILE_MAX,
    LINES_PER_FUNCTION_MAX,
    MAY_IMPORT,
    MAY_IMPORT_LATE,
    METHODS_PER_CLASS_MAX,
    PARAMETERS_MAX,
    PURE,
    PURE_LIBRARIES,
    TOO_LONG,
)
from source import Module, imports

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def own_package(target: str) -> str | None:
    if target != "tercet" and not target.startswith("tercet."):
        return None
    parts = target.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def layers(module: Module) -> Iterator[str]:
    allowed = MAY_IMPORT.get(module.package)
    if allowed is None:
        yield f"{module.shown}: package {module.package!r} is not in the table of rules.py"
        return
    for item in imports(module.tree):
        own = own_package(item.target)
        if own is None:
            continue
        where = f"{module.shown}:{item.line}"
        if own == "<relative>":
            yield f"{where}: relative import; write it from `tercet.`"
        elif own not in {module.package, "__init__"} and not allowed & {"*", own}:
            yield f"{where}: {module.package} may not import {own}"
        elif {own, module.package} == {"runtime", "sim"}:
            yield f"{where}: runtime and sim are two drivers that do not know each other"
        if item.late and not module.name.startswith(MAY_IMPORT_LATE):
            yield f"{where}: own import hidden in a function; move the noun down"


def outside_world(module: Module) -> Iterator[str]:
    if module.package not in PURE:
        return
    for item in imports(module.tree):
        if own_package(item.target) is None and item.target.split(".")[0] not in PURE_LIBRARIES:
            yield f"{module.shown}:{item.line}: {item.target} is not for pure code"


def impure_calls(module: Module) -> Iterator[str]:
    if module.package not in PURE:
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Set | ast.SetComp):
            yield f"{module.shown}:{node.lineno}: a set; use a dict or a tuple"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            replacement = BANNED_CALLS_IN_PURE.get(node.func.id)
            if replacement:
                yield f"{module.shown}:{node.lineno}: {node.func.id}() in pure code; {replacement}"


def catch_all(module: Module) -> Iterator[str]:
    if module.shown.removeprefix("src/tercet/") in CATCH_ALL_ALLOWED:
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler):
            names = ast.unparse(node.type) if node.type else "everything"
            last = node.body[-1]
            if isinstance(last, ast.Raise) and last.exc is None:
                continue  # cleaning up on the way out swallows nothing
            if re.search(r"\b(Base)?Exception\b|^everything$", names):
                yield f"{module.shown}:{node.lineno}: catches {names}; name the errors"


def global_state(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Global):
            yield f"{module.shown}:{node.lineno}: `global`; give the state an owner"


def environment(module: Module) -> Iterator[str]:
    if module.package in {"cli", "llm"}:
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.environ", "os.getenv"}:
            yield f"{module.shown}:{node.lineno}: reads the environment; only cli may"


def names(module: Module) -> Iterator[str]:
    for part in module.name.split("."):
        if part in BANNED_NAMES:
            yield f"{module.shown}: {part!r} says nothing; name the noun"


def history(module: Module) -> Iterator[str]:
    for number, line in enumerate(module.text.splitlines(), 1):
        if re.search("|".join(BANNED_WORDS), line):
            yield f"{module.shown}:{number}: {line.strip()}"


def file_length(module: Module) -> Iterator[str]:
    length = module.text.count("\n")
    if length > LINES_PER_FILE_MAX and module.shown not in TOO_LONG:
        yield f"{module.shown}: {length} lines, at most {LINES_PER_FILE_MAX}"


def function_sizes(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, FUNCTIONS):
            where = f"{module.shown}:{node.lineno}: {node.name}"
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LINES_PER_FUNCTION_MAX:
                yield f"{where} has {length} lines, at most {LINES_PER_FUNCTION_MAX}"
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = len([a for a in every if a.arg not in {"self", "cls"}])
            if count > PARAMETERS_MAX:
                yield f"{where} takes {count} parameters, at most {PARAMETERS_MAX}"


def class_sizes(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef):
            public = [f for f in node.body if isinstance(f, FUNCTIONS) and f.name[0] != "_"]
            if len(public) > METHODS_PER_CLASS_MAX:
                yield f"{module.shown}:{node.lineno}: {node.name} has {len(public)} methods"


def package_docstring(module: Module) -> Iterator[str]:
    if module.path.name == "__init__.py" and not ast.get_docstring(module.tree):
        yield f"{module.shown}: the first docstring says what the package is and is not"


RULES = (
    layers,
    outside_world,
    impure_calls,
    catch_all,
    global_state,
    environment,
    names,
    history,
    file_length,
    function_sizes,
    class_sizes,
    package_docstring,
)
