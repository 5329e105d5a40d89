"""How long an agent waits for its zygote to fork."""

BIRTH_S = 5.0
"""A zygote that has not forked by then is taken for dead (measured: milliseconds)."""
BIRTH_S_MAX = 80.0


class ZygotePatience:
    """Twice as long after each zygote that was taken for dead, until one forks: where a host is so
    busy that one takes seconds to come up, killing it again and again would be the end of births.
    """

    def __init__(self) -> None:
        self.seconds = BIRTH_S
        self._taken_for_dead: object | None = None

    def born(self) -> None:
        """A process was forked."""
        self.seconds = BIRTH_S

    def over(self, asked: object, now: object) -> bool:
        """Say whether the zygote that was asked is to be replaced: it is the one of now, and
        nobody who waited for it too has said so before.
        """
        if asked is not now or asked is self._taken_for_dead:
            return False
        self._taken_for_dead = asked
        self.seconds = min(2 * self.seconds, BIRTH_S_MAX)
        return True
