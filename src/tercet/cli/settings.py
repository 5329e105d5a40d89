"""Configuration from several sources into frozen dataclasses, knowing where each value came from.

A schema is a frozen dataclass whose fields are values or further such dataclasses. A source is a
name and a flat table of dotted keys. Later sources win. An unknown key, or a value of the wrong
kind, is `Invalid` in a sentence that names the nearest key or the expected kind.
"""

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from tercet.base.errors import Invalid

T = TypeVar("T")
DEFAULT = "default"


@dataclass(frozen=True)
class Source:
    """Values of one origin (`--set`, `file tercet.toml`), by dotted key."""

    name: str
    values: Mapping[str, object]


@dataclass(frozen=True)
class Resolved(Generic[T]):
    """The finished configuration, and the origin of every value by dotted key."""

    value: T
    origins: Mapping[str, str]


@dataclass(frozen=True)
class Key:
    """One value that a schema has."""

    name: str
    kind: Any
    default: object


def keys(schema: type) -> dict[str, Key]:
    """Every dotted key of a schema, in the order of its fields."""
    return {key.name: key for key in _walk(schema, "")}


def resolve(schema: type[T], sources: Sequence[Source]) -> Resolved[T]:
    """Build the schema from its defaults and the sources, the last one winning."""
    known = keys(schema)
    chosen: dict[str, object] = {}
    origins = dict.fromkeys(known, DEFAULT)
    for source in sources:
        for name, value in source.values.items():
            if name not in known:
                raise unknown_key(name, known, source.name)
            chosen[name] = _convert(value, known[name], source.name)
            origins[name] = source.name
    return Resolved(_build(schema, "", chosen), origins)


def file_source(path: Path) -> Source:
    """The values of a TOML file."""
    import tomllib

    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}", parameter="config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} is not TOML: {error}", parameter="config") from error
    return Source(f"file {path}", dict(_flatten(tree, "")))


def set_source(assignments: Sequence[str]) -> Source:
    """The values of `--set a.b=c`; a value is read as TOML if it is, else as a string."""
    values: dict[str, object] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name.strip():
            raise Invalid(f"--set {assignment!r} is not of the form KEY=VALUE", parameter="set")
        values[name.strip()] = _toml_value(text.strip())
    return Source("--set", values)


def unknown_key(name: str, known: Mapping[str, object], origin: str) -> Invalid:
    """The error that names the nearest key that exists."""
    import difflib  # only for a mistake

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    if not near:
        last = name.rsplit(".", 1)[-1]
        near = [key for key in known if key.rsplit(".", 1)[-1] == last][:1]
    hint = f"; did you mean {near[0]!r}?" if near else "; see `tercet config show`"
    return Invalid(f"unknown key {name!r} ({origin}){hint}", code="unknown_key", parameter=name)


def _walk(schema: type, prefix: str) -> Iterator[Key]:
    kinds = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        kind, name = kinds[field.name], prefix + field.name
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            yield from _walk(kind, name + ".")
        else:
            yield Key(name, kind, _default(field))


def _default(field: "dataclasses.Field[Any]") -> object:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return dataclasses.MISSING


def _build(schema: type[T], prefix: str, chosen: Mapping[str, object]) -> T:
    kinds = typing.get_type_hints(schema)
    arguments: dict[str, object] = {}
    for field in dataclasses.fields(schema):  # type: ignore[arg-type]
        kind, name = kinds[field.name], prefix + field.name
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            arguments[field.name] = _build(kind, name + ".", chosen)
        elif name in chosen:
            arguments[field.name] = chosen[name]
        elif _default(field) is dataclasses.MISSING:
            raise Invalid(f"{name} has no default and was not given", parameter=name)
    try:
        return schema(**arguments)
    except ValueError as error:
        raise Invalid(str(error), code="invalid_value") from error


def _convert(value: object, key: Key, origin: str) -> object:
    # A single value is a list of one: `--set api.api_keys=secret`.
    if typing.get_origin(key.kind) is tuple and not isinstance(value, list | tuple):
        value = [value]
    try:
        return msgspec.convert(value, key.kind, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(
            f"{key.name} = {value!r} ({origin}) is not {_show(key.kind)}",
            parameter=key.name,
        ) from error


def _show(kind: object) -> str:
    names = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
    if isinstance(kind, types.UnionType):
        parts = [part for part in typing.get_args(kind) if part is not types.NoneType]
        return " or ".join(_show(part) for part in parts)
    if typing.get_origin(kind) is typing.Literal:
        return "one of " + ", ".join(map(repr, typing.get_args(kind)))
    if isinstance(kind, type) and kind in names:
        return names[kind]
    return f"a {getattr(kind, '__name__', kind)}"


def _flatten(tree: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _toml_value(text: str) -> object:
    import tomllib  # most commands are given no value

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
