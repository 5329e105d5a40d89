"""Reading numbers out of a file that somebody else wrote: the value, or a sentence about it."""

import math
from collections.abc import Mapping

from tercet.base.errors import Invalid


class Fields:
    """A mapping from a checkpoint, with the name that errors call it by."""

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        self._values = values
        self._where = where

    def get(self, key: str) -> object:
        """The value or None; a null is an absent value."""
        return self._values.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def integer(self, key: str, default: int | None = None) -> int:
        """A positive integer; a list that repeats one integer (per layer) counts as that one."""
        value = self._values.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, list | tuple) and value and all(one == value[0] for one in value):
            value = value[0]
        number = as_integer(value)
        if number is None or number <= 0:
            raise self.wrong(key, "a positive integer")
        return number

    def number(self, key: str, default: float | None = None) -> float:
        """A positive finite number."""
        value = self._values.get(key)
        if value is None and default is not None:
            return default
        try:
            number = math.nan if isinstance(value, bool) else float(str(value))
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number > 0):
            raise self.wrong(key, "a positive number")
        return number

    def within(self, key: str, low: float, high: float, default: float) -> float:
        """A finite number of [low, high]."""
        value = self._values.get(key)
        if value is None:
            return default
        number = math.nan
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = float(value)
        if not low <= number <= high:
            raise self.wrong(key, f"a number from {low:g} to {high:g}")
        return number

    def flag(self, key: str, *, default: bool = False) -> bool:
        value = self._values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def ids(self, *keys: str) -> tuple[int, ...]:
        """Token ids under these keys, each an id, a list of ids or absent; no doubles."""
        found: list[int] = []
        for key in keys:
            value = self._values.get(key)
            many = value if isinstance(value, list | tuple) else [value]
            for one in many:
                number = as_integer(one)
                if one is not None and number is None:
                    raise self.wrong(key, "a token id or a list of them")
                if number is not None and number >= 0 and number not in found:
                    found.append(number)
        return tuple(found)

    def wrong(self, key: str, expected: str) -> Invalid:
        value = self._values.get(key)
        said = "is missing" if value is None else f"is {value!r}"
        return Invalid(
            f"{self._where}: {key} {said}, expected {expected}",
            code="model_invalid",
            parameter="model",
        )


def as_integer(value: object) -> int | None:
    """The integer that a value is, be it Python's or NumPy's; None for anything else."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    return int(value.__index__())
