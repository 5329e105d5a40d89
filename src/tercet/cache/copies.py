"""Where else values lie, as far as is known here: hints, never the truth.

    key at a value's end ──▶ { dram, ssd, DRAM, SSD, peer:<address> }

Soft state: a hint that is wrong costs a question or a fetch that finds nothing, and goes then. So
it may be forgotten at any time, and the oldest are when there are too many.
"""

from collections import OrderedDict
from collections.abc import Iterable

NUM_KEYS_MAX = 65_536


class Copies:
    """Keys of values and the places that are said to have them; O(1) a call."""

    def __init__(self, *, num_keys_max: int = NUM_KEYS_MAX) -> None:
        self._num_keys_max = num_keys_max
        self._places: OrderedDict[bytes, tuple[str, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def places(self, key: bytes) -> tuple[str, ...]:
        """Give the places that are said to have a value, the latest said first."""
        return self._places.get(key, ())

    def note(self, key: bytes, place: str) -> None:
        """A place has a value."""
        others = tuple(one for one in self._places.pop(key, ()) if one != place)
        self._places[key] = (place, *others)
        if len(self._places) > self._num_keys_max:
            self._places.popitem(last=False)

    def lost(self, key: bytes, place: str | None = None) -> None:
        """A place does not have a value (None: no place has it)."""
        known = self._places.pop(key, ())
        left = tuple(one for one in known if one != place) if place is not None else ()
        if left:
            self._places[key] = left

    def forget(self, places: Iterable[str] | None = None) -> None:
        """Nothing is known of these places any more (None: of all)."""
        if places is None:
            self._places.clear()
            return
        gone = dict.fromkeys(places)
        for key, known in list(self._places.items()):
            left = tuple(one for one in known if one not in gone)
            if left:
                self._places[key] = left
            else:
                del self._places[key]
