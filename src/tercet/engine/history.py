"""Which tokens a sequence holds and how often its output does, kept as arrays that a step can
hand to the sampler as they are.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from tercet.devices.contract import I32


class TokenCounts:
    """Distinct tokens in order of first appearance, with their counts in the output.

        ids     [ 5 | 9 | 2 | . . . ]      5, 9: from the prompt; 2: first seen in the output
        counts  [ 0 | 3 | 1 | . . . ]      .: room to grow
        places  { 5: 0, 9: 1, 2: 2 }

    Tokens of the prompt are held only where a penalty asks for them (repetition).
    """

    def __init__(self, prompt: Iterable[int]) -> None:
        distinct = list(dict.fromkeys(prompt))
        self._places = {token: place for place, token in enumerate(distinct)}
        self._ids = np.array(distinct + [0] * 16, np.int32)
        self._counts = np.zeros(len(self._ids), np.int32)

    def add(self, token: int) -> None:
        """Count one more output token."""
        place = self._places.get(token)
        if place is None:
            place = self._places[token] = len(self._places)
            if place == len(self._ids):
                self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._ids[place] = token
        self._counts[place] += 1

    def followed_by(self, tokens: Sequence[int]) -> tuple[I32, I32]:
        """Ids and counts as they were after so many more output tokens, which are not added."""
        ids, counts = self.ids, self.counts
        if not tokens:
            return ids, counts
        more: dict[int, int] = {}
        counts = counts.copy()
        for token in tokens:
            place = self._places.get(token)
            if place is None:
                more[token] = more.get(token, 0) + 1
            else:
                counts[place] += 1
        return (
            np.concatenate([ids, np.array(list(more), np.int32)]),
            np.concatenate([counts, np.array(list(more.values()), np.int32)]),
        )

    @property
    def ids(self) -> I32:
        """Valid until the next `add`."""
        return self._ids[: len(self._places)]

    @property
    def counts(self) -> I32:
        """Parallel to `ids`; 0 for a token that only the prompt holds."""
        return self._counts[: len(self._places)]
