"""Finds stop strings in a stream of text, however it is cut into pieces.

Several strings are matched at once by an automaton (Aho and Corasick, 1975): its state is the
longest end of the text so far that begins a stop string. That end is what must be held back,
nothing more; and each character costs amortised constant time, whatever the strings.

    text so far   ... a b c | x x y          stop: "xxyz"
                      sent  | held (state)   next "z": found; else the state says how much stays
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from tercet.base.errors import Invalid


class StopMatch(NamedTuple):
    """What a piece of text came to."""

    emit: str
    """Text that is certain now, without the stop string unless it was to be included."""
    found: str | None = None
    """The stop string that ended the text; nothing may follow."""


STOP_CHARACTERS_MAX = 1 << 14
"""All stop strings of a request together; each character of them is a state of the automaton."""


def check_stops(stops: Sequence[str]) -> None:
    """Refuse stop strings that cannot be served; at the edge, before a stream exists."""
    if not all(stops):
        raise Invalid("a stop string is empty; expected at least one character", parameter="stop")
    total = sum(map(len, stops))
    if total > STOP_CHARACTERS_MAX:
        raise Invalid(
            f"the stop strings have {total} characters together; at most {STOP_CHARACTERS_MAX} "
            "are served",
            parameter="stop",
        )


class StopStrings:
    """One stream; the stop string that ends first in the text wins, of these the longest.

    An empty list of strings lets everything pass.
    """

    __slots__ = (
        "_arrivals",
        "_depths",
        "_ended",
        "_fallbacks",
        "_held",
        "_include",
        "_nexts",
        "_state",
    )

    def __init__(self, stops: Sequence[str], *, include_stop: bool = False) -> None:
        self._include = include_stop
        self._state = 0
        self._held = ""
        self._ended = False
        self._nexts: list[dict[str, int]] = [{}]
        self._depths = [0]
        self._fallbacks = [0]
        self._arrivals: list[str | None] = [None]
        for stop in stops:
            self._insert(stop)
        self._link()

    def push(self, text: str) -> StopMatch:
        """Take the next piece; after a string was found, or `flush`, nothing is emitted."""
        if self._ended:
            return StopMatch("")
        nexts, fallbacks, state = self._nexts, self._fallbacks, self._state
        if not state and nexts[0].keys().isdisjoint(text):
            return StopMatch(text)
        for position, character in enumerate(text):
            while (following := nexts[state].get(character)) is None and state:
                state = fallbacks[state]
            state = following or 0
            found = self._arrivals[state]
            if found is not None:
                return self._end(self._held + text[: position + 1], found)
        self._state = state
        whole = self._held + text
        certain = len(whole) - self._depths[state]
        self._held = whole[certain:]
        return StopMatch(whole[:certain])

    def flush(self) -> str:
        """The stream ended without a stop string: what was held back."""
        held, self._held = self._held, ""
        self._ended = True
        return held

    def _end(self, text: str, found: str) -> StopMatch:
        self._ended = True
        self._held = ""
        emit = text if self._include else text[: len(text) - len(found)]
        return StopMatch(emit, found)

    def _insert(self, stop: str) -> None:
        if not stop:
            return
        state = 0
        for character in stop:
            following = self._nexts[state].get(character)
            if following is None:
                following = len(self._nexts)
                self._nexts[state][character] = following
                self._nexts.append({})
                self._depths.append(self._depths[state] + 1)
                self._fallbacks.append(0)
                self._arrivals.append(None)
            state = following
        self._arrivals[state] = stop

    def _link(self) -> None:
        """Point each state to the longest proper end of its text that is a state too."""
        queue = deque(self._nexts[0].values())
        while queue:
            state = queue.popleft()
            for character, following in self._nexts[state].items():
                fallback = self._fallbacks[state]
                while character not in self._nexts[fallback] and fallback:
                    fallback = self._fallbacks[fallback]
                self._fallbacks[following] = self._nexts[fallback].get(character, 0)
                queue.append(following)
            if self._arrivals[state] is None:
                self._arrivals[state] = self._arrivals[self._fallbacks[state]]
