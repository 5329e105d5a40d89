"""One thread or many: chosen by what steps took lately, since a shared machine punishes many.

A library whose threads wait for each other by spinning (OpenBLAS does, at every product) is ten
times slower once another process takes one of the cores: every product waits until the thread
that lost its core runs again. One thread has no such wait. Nothing tells beforehand which holds,
so both are tried: the current choice all the time, the other one now and then.

    steps   m m m m m m m 1 m m m m ...          m: most threads; 1: a probe with one
                          '- lost: the next probe comes after twice as many steps
            m m M M 1 1 1 1 1 ... m 1 1 ...      M: steps that took much longer than predicted
"""

PROBE_STEPS_MIN = 16
PROBE_STEPS_MAX = 512
_WEIGHT = 0.25
"""Of the latest step in the running mean."""
_CLEARLY = 0.9
"""The other choice must take less than this share of the time to be taken."""
_SUSPICIOUS = 2.0
"""Slowness that asks for the first probe at once."""
_PREDICTED_NS_MIN = 1_000_000
"""Shorter steps tell nothing: they are mostly not products."""


class ThreadChoice:
    """How many threads the next step gets; told what each step took against its prediction."""

    def __init__(self, most: int, *, first: int | None = None) -> None:
        self._most = most
        self._current = first or most
        self._probing = False
        self._slowness: dict[int, float] = {}
        """By number of threads: running mean of taken / predicted."""
        self._interval = PROBE_STEPS_MIN
        self._until_probe = PROBE_STEPS_MIN

    @property
    def threads(self) -> int:
        """For the next step."""
        return self._other if self._probing else self._current

    @property
    def _other(self) -> int:
        return self._most if self._current == 1 else 1

    def learn(self, *, taken_ns: int, predicted_ns: int) -> None:
        """Take account of the step that was run with `threads`."""
        if self._most == 1 or predicted_ns < _PREDICTED_NS_MIN:
            return
        slowness = taken_ns / predicted_ns
        if self._probing:
            self._judge(slowness)
            return
        former = self._slowness.get(self._current, slowness)
        mean = self._slowness[self._current] = former + _WEIGHT * (slowness - former)
        self._until_probe -= 1
        known = self._slowness.get(self._other)
        if known is not None and known < _CLEARLY * mean:
            self._turn()
        elif self._until_probe <= 0 or (known is None and mean > _SUSPICIOUS):
            self._probing = True

    def _judge(self, slowness: float) -> None:
        self._probing = False
        self._slowness[self._other] = slowness
        if slowness < _CLEARLY * self._slowness[self._current]:
            self._turn()
        else:
            self._interval = min(2 * self._interval, PROBE_STEPS_MAX)
            self._until_probe = self._interval

    def _turn(self) -> None:
        self._current = self._other
        self._interval = self._until_probe = PROBE_STEPS_MIN
