"""A Jinja environment in which a foreign template can neither reach out nor run away.

Jinja's immutable sandbox keeps a template from the interpreter and from its arguments. What it
does not bound is bounded here: a rendering has a budget of work, every loop iteration, call,
filter and operation takes from it by the size of what it touches, and no single text or list may
grow beyond a limit, checked before it is made.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextvars import ContextVar
from functools import wraps
from typing import NoReturn, TypeVar

from jinja2 import Template, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from tercet.base.errors import InvariantBroken

SIZE_MAX = 1 << 22
"""Characters (or items) of one value, and of a whole rendering."""
WORK_MAX = 1 << 20
"""Units of work in one rendering: half a second."""
_SIZE_PER_UNIT = 256
_UNITS_PER_CALL = 16
_NUMBER_SIZE = 8
_WALKS = frozenset(
    {
        "capitalize",
        "center",
        "dictsort",
        "e",
        "escape",
        "forceescape",
        "format",
        "groupby",
        "indent",
        "join",
        "lower",
        "max",
        "min",
        "replace",
        "sort",
        "string",
        "sum",
        "title",
        "tojson",
        "trim",
        "truncate",
        "unique",
        "upper",
        "wordcount",
    }
)
"""Filters and methods that walk through a whole value, lists in lists too."""
_PADS = frozenset(
    {"batch", "center", "expandtabs", "format", "indent", "ljust", "rjust", "slice", "zfill"}
)
"""Those whose result grows with a number given to them."""
_LEFT_OUT = frozenset(
    {
        "filesizeformat",
        "pprint",
        "random",
        "striptags",
        "urlencode",
        "urlize",
        "wordwrap",
        "xmlattr",
    }
)
"""Filters that a prompt does not need and whose cost or result is not bounded by their input."""
_WIDE_FORMAT = re.compile(r"\d{5}|\*")

Result = TypeVar("Result")


class TemplateRefused(Exception):  # noqa: N818  what happened, as a sentence
    """The template itself refuses these messages, or it went beyond a bound."""


class _Budget:
    def __init__(self) -> None:
        self.left = WORK_MAX
        self._produced = 0

    def produce(self, size: int) -> None:
        self.spend()
        self._produced += size
        if self._produced > SIZE_MAX:
            raise TemplateRefused(f"the text is over {SIZE_MAX} characters long")

    def spend(self, size: int = 0) -> None:
        if size > SIZE_MAX:
            raise TemplateRefused(f"a value of the template is over {SIZE_MAX} characters long")
        self.left -= 1 + size // _SIZE_PER_UNIT
        if self.left < 0:
            raise TemplateRefused("the template does not come to an end")

    def spend_calls(self) -> None:
        self.left -= _UNITS_PER_CALL


_budget: ContextVar[_Budget] = ContextVar("budget")


def bounded(render: Callable[[], Iterator[str]]) -> str:
    """The joined pieces of one rendering, within a budget of its own, or `TemplateRefused`."""
    budget = _Budget()
    token = _budget.set(budget)
    try:
        pieces: list[str] = []
        for piece in render():
            budget.produce(len(piece))
            pieces.append(piece)
        return "".join(pieces)
    except TemplateRefused:
        raise
    except Exception as error:  # foreign code may raise anything
        raise TemplateRefused(f"{type(error).__name__}: {error}") from error
    finally:
        _budget.reset(token)


class _Counted:
    """Something to iterate over whose every item is work."""

    def __init__(self, items: Iterable[object]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[object]:
        spend = _budget.get().spend
        for item in self._items:
            spend()
            yield item


class _CountedSized(_Counted):
    """The same with a length, which templates ask for as `loop.last` and `loop.length`."""

    def __len__(self) -> int:
        assert isinstance(self._items, Sized)  # chosen by `_counted`
        return len(self._items)


def _counted(items: Iterable[object]) -> Iterable[object]:
    return _CountedSized(items) if isinstance(items, Sized) else _Counted(items)


def _measured(value: object) -> object:
    """The value, after its size as a text was paid for."""
    _text_size(value)
    return value


def _text_size(value: object) -> int:
    """About how many characters the value has as a text, every item paid for.

    Lists that hold one list many times make long texts from little memory, so all is walked.
    """
    spend = _budget.get().spend
    total = 0
    waiting: list[Iterable[object]] = [[value]]
    while waiting:
        for item in waiting.pop():
            if isinstance(item, str):
                total += len(item)
                spend(len(item) if total <= SIZE_MAX else total)
            elif isinstance(item, Mapping):
                waiting += [item.keys(), item.values()]
                spend()
            elif isinstance(item, list | tuple | set | frozenset):
                waiting.append(item)
                spend()
            else:
                total += _NUMBER_SIZE
                spend()
    return total


def _joined(parts: Sequence[object]) -> str:
    _text_size(parts)
    return "".join(map(str, parts))


class _Instrument(NodeTransformer):
    """Makes loops and `~` spend, by passing their operands through filters of ours."""

    def generic_visit(self, node: nodes.Node, *args: object, **kwargs: object) -> nodes.Node:
        """Rewrite the children first, then the node itself."""
        super().generic_visit(node, *args, **kwargs)
        if isinstance(node, nodes.For):
            node.iter = _through("counted", node.iter)
        if isinstance(node, nodes.Concat):
            return _through("joined", nodes.List(node.nodes, lineno=node.lineno))
        return node


def _through(filter_name: str, node: nodes.Node) -> nodes.Filter:
    if not isinstance(node, nodes.Expr):
        raise InvariantBroken(f"{node!r} is no expression")
    return nodes.Filter(node, filter_name, [], [], None, None, lineno=node.lineno)


class _Generation(Extension):
    """`{% generation %}` marks answers in templates made for training; it changes no text."""

    tags = {"generation"}  # noqa: RUF012  Jinja's own interface

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment; templates of one sandbox may render in several threads at once."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _Generation],
            finalize=_measured,
        )
        self.filters["tojson"] = _to_json
        self.filters = {
            name: _spending(name, filter_)
            for name, filter_ in self.filters.items()
            if name not in _LEFT_OUT
        }
        self.filters["counted"] = _counted
        self.filters["joined"] = _joined
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception

    def build(self, tree: nodes.Template) -> Template:
        """The parsed template made ready to render, only inside `bounded`."""
        tree = _Instrument().visit(tree)
        return Template.from_code(self, self.compile(tree), self.make_globals(None))

    def call(self, context: Context, function: object, *args: object, **kwargs: object) -> object:
        """Call for a template, spending by the sizes of receiver and arguments."""
        # The sandbox wraps `str.format` in a function of its own.
        method = getattr(function, "__wrapped__", function)
        receiver = getattr(method, "__self__", None)
        _budget.get().spend_calls()
        _check_call(getattr(method, "__name__", ""), [receiver, *args, *kwargs.values()])
        return super().call(context, function, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Operate for a template, after its size was checked."""
        _budget.get().spend(_size_of_operation(operator, left, right))
        return super().call_binop(context, operator, left, right)


def _size_of_operation(operator: str, left: object, right: object) -> int:
    if operator == "%" and isinstance(left, str):
        return _format_size(left, left.count("%"), right)
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * (right if operator == "**" else 1) + right.bit_length()
        return SIZE_MAX + 1 if bits > 1 << 12 else 0
    if operator == "*":
        items, times = (right, left) if isinstance(left, int) else (left, right)
        return _size(items) * times if isinstance(times, int) and times > 0 else 0
    return _size(left) + _size(right)


def _format_size(pattern: str, num_places: int, values: object) -> int:
    if _WIDE_FORMAT.search(pattern):
        return SIZE_MAX + 1
    return len(pattern) + num_places * _text_size(values)


def _check_call(name: str, values: Sequence[object]) -> None:
    spend = _budget.get().spend
    numbers = [value for value in values if isinstance(value, int)]
    if any(abs(number) > SIZE_MAX for number in numbers):
        spend(SIZE_MAX + 1)
    if name in _PADS:
        spend(sum(map(abs, numbers)))
    counts = [_size(value) for value in values]
    sizes = [_text_size(value) for value in values] if name in _WALKS else counts
    first = values[0] if values else None
    if name == "format" and isinstance(first, str):
        spend(_format_size(first, first.count("{") + first.count("%"), values[1:]))
    elif name == "replace" and len(sizes) > 2:
        spend(sizes[0] + _count(first, values[1]) * sizes[2])
    elif name == "join" and len(sizes) > 1:
        # `items | join(separator)` or `separator.join(items)`: the bound is the same.
        spend(sum(sizes) + counts[0] * counts[1])
    else:
        spend(sum(sizes))


def _count(text: object, part: object) -> int:
    if isinstance(text, str) and isinstance(part, str):
        return text.count(part)
    return 0


def _size(value: object) -> int:
    return len(value) if isinstance(value, Sized) and not isinstance(value, range) else 0


def _spending(name: str, filter_: Callable[..., Result]) -> Callable[..., Result]:
    """The filter, spending by the sizes of its arguments (Jinja passes some a context first)."""
    passed = 1 if hasattr(filter_, "jinja_pass_arg") else 0

    @wraps(filter_)
    def spending(*args: object, **kwargs: object) -> Result:
        values = [*args[passed:], *kwargs.values()]
        _budget.get().spend_calls()
        _check_call(name, values)
        return filter_(*args, **kwargs)

    return spending


def _to_json(
    value: object,
    indent: int | None = None,
    *,
    ensure_ascii: bool = False,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as Hugging Face's templates expect it: without escapes for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: object) -> NoReturn:
    raise TemplateRefused(str(message))
