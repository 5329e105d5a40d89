"""Outcomes in a file, one JSON line each: a long benchmark that was ended goes on where it was.

A name says everything that an outcome depends on: command, sizes, which of the measures it is.
"""

from pathlib import Path
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Kept(Generic[T]):
    """Outcomes of one kind; without a path nothing is kept."""

    def __init__(self, path: Path | None, kind: type[T]) -> None:
        self._path = path
        self._decoder = msgspec.json.Decoder(tuple[str, kind])  # type: ignore[valid-type]

    def get(self, name: str) -> T | None:
        """Give the outcome of this name, if there is one."""
        if self._path is None or not self._path.exists():
            return None
        for line in self._path.read_bytes().splitlines():
            found, outcome = self._decoder.decode(line)
            if found == name:
                return outcome
        return None

    def put(self, name: str, outcome: T) -> None:
        """Add one."""
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode((name, outcome)) + b"\n")
