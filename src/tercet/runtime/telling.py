"""What a front tells the supervisor of its readiness: changes only."""

from tercet.runtime.control import Failed, State


class Telling:
    """Remembers what was said last."""

    def __init__(self) -> None:
        self._ready = False
        self._failed = ""

    def news(self, *, ready: bool, failed: str) -> list[State | Failed]:
        """Give what the supervisor does not know yet; `failed` counts while nothing is ready."""
        notes: list[State | Failed] = []
        if ready != self._ready:
            self._ready = ready
            notes.append(State(ready=ready))
        reason = "" if ready else failed
        if reason != self._failed:
            self._failed = reason
            if reason:
                notes.append(Failed(sentence=reason))
        return notes
