"""Bars for what takes long before a model can answer; nothing is loaded where nothing does."""

import contextlib
from collections.abc import Callable, Iterator

STAGES = {"fetch": "Fetching", "check": "Checking", "build": "Building the model image"}


class Bars:
    """A bar for each stage that takes long enough to be seen."""

    def __init__(self) -> None:
        from tqdm import tqdm

        self._make = tqdm
        self._stage = ""
        self._bar = tqdm(disable=True)

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage != self._stage:
            self.close()
            self._stage = stage
            title = STAGES.get(stage, stage)
            unit = "B" if stage in STAGES else "it"
            self._bar = self._make(total=total, unit=unit, unit_scale=True, desc=title, delay=0.3)
        self._bar.update(max(0, done - self._bar.n))

    def close(self) -> None:
        self._bar.close()


@contextlib.contextmanager
def late_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Bars that are made with the first progress; they are closed at the end of the block."""
    made: list[Bars] = []

    def show(stage: str, done: int, total: int) -> None:
        if not made:
            made.append(Bars())
        made[0](stage, done, total)

    try:
        yield show
    finally:
        for bars in made:
            bars.close()
