"""Where the errors of a process are contained: told in full, then the process stops.

A machine that contradicts itself, or a callback that raises, must not carry on with a state that
nobody can explain; whoever watches the process replaces it.
"""

import asyncio
import logging
import os
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn

EXIT_PROGRAMMER_ERROR = 70
"""EX_SOFTWARE of sysexits.h."""

_log = logging.getLogger("tercet.runtime")


def stop(story: str, error: BaseException | None) -> NoReturn:
    """End this process at once after telling what happened."""
    trace = "" if error is None else "".join(traceback.format_exception(error))
    _log.critical("%s\n%s", story, trace.rstrip())
    for handler in logging.getLogger().handlers:
        handler.flush()
    sys.stderr.flush()
    os._exit(EXIT_PROGRAMMER_ERROR)


class OrStop:
    """A block that ends the process if it raises, with a story made only then."""

    def __init__(self, story: Callable[[], str]) -> None:
        self._story = story

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            stop(self._story(), error)


def stop_on_loop_errors(loop: asyncio.AbstractEventLoop, name: str) -> None:
    """Make an error that no callback or task handled end the process.

    Errors of a connection that broke while it was written to or read from are only logged: they
    are somebody else's end.
    """

    def handle(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        message = str(context.get("message", "an error in the event loop"))
        if isinstance(error, OSError | EOFError) and "transport" in context:
            _log.warning("%s: %s: %s", name, message, error)
            return
        if isinstance(error, BaseException):
            stop(f"{name}: {message}", error)
        _log.error("%s: %s", name, message)

    loop.set_exception_handler(handle)
