"""How often guesses of a task's next tokens were right lately."""

from tercet.messages.plan import GUESS_RIGHT

_KEPT = 0.9
"""Weight of a trial, once another one has come."""
_RIGHT_BEFORE, _TRIED_BEFORE = 0.2, 1.0
"""What stands beside the first trials: little hope."""


class Acceptance:
    """A running rate; trials are guesses that came after right ones only, up to the first wrong
    one, so that it is the chance of the next guess if all before it are right.
    """

    __slots__ = ("_right", "_tried", "rate")

    def __init__(self) -> None:
        self._right = 0.0
        self._tried = 0.0
        self.rate = 0.0
        """Nothing is expected before the first trial."""

    def learn(self, *, drafted: int, accepted: int, guessed: int) -> None:
        """Take account of a step: rows that verified guesses and how many were right, or (without
        such rows) GUESS_* of the first guess.
        """
        right = accepted if drafted else int(guessed == GUESS_RIGHT)
        wrong = int(right < max(drafted, 1))
        for _ in range(right):
            self._right = _KEPT * self._right + 1.0
            self._tried = _KEPT * self._tried + 1.0
        if wrong:
            self._right = _KEPT * self._right
            self._tried = _KEPT * self._tried + 1.0
        self.rate = (self._right + _RIGHT_BEFORE) / (self._tried + _TRIED_BEFORE)
