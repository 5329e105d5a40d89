"""Kills and stops processes of a tree at random moments, and remembers what it did when."""

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Self

import httpx
from house import House

from tercet.runtime.config import Fault, FaultKind

KINDS: tuple[FaultKind, ...] = ("raise", "hold_gil", "spin", "sleep", "exit")


@dataclass(frozen=True)
class Act:
    """One thing that was done."""

    at: float
    kind: str
    num_tasks: int
    """Tasks that were computed by the executors it was done to."""


def faults_of_replacements(*, replicas: int, count: int, rand: Random) -> tuple[Fault, ...]:
    """Faults below the device seam for every second one of the executors that replace others."""
    numbers = range(replicas, replicas + 2 * count, 2)
    return tuple(
        Fault(kind=KINDS[at % len(KINDS)], step=rand.randint(3, 150), executor=number)
        for at, number in enumerate(numbers)
    )


class Saboteur:
    """Works in a thread of its own, one act after another, until it is told to stop."""

    def __init__(
        self, house: House, rand: Random, *, pause_s: tuple[float, float], acts: dict[str, int]
    ) -> None:
        """`acts`: how often each in a deck that is shuffled and dealt, again and again."""
        self.done: list[Act] = []
        self._house = house
        self._rand = rand
        self._pause_s = pause_s
        self._acts = [name for name, count in acts.items() for _ in range(count)]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        deck: list[str] = []
        while not self._over.wait(self._rand.uniform(*self._pause_s)):
            deck = deck or self._rand.sample(self._acts, len(self._acts))
            name = deck.pop()
            try:
                _ACTS[name](self, name)
            except ProcessLookupError:
                continue  # it died before it could be killed

    def _harm(self, name: str, titles: list[str], number: int = signal.SIGKILL) -> None:
        every = self._house.processes()
        victims = [pid for title in titles for pid in every.get(title, ())]
        if not victims:
            return
        num_tasks = sum(
            self._tasks().get(title.split()[3], 0) for title in titles if "exec" in title
        )
        self.done.append(Act(time.monotonic(), name, num_tasks))
        for pid in victims:
            self._house.kill(pid, number)

    def _spare(self, name: str) -> None:
        self.done.append(Act(time.monotonic(), name, sum(self._tasks().values())))

    def _executors(self) -> list[str]:
        titles = [title for title in self._house.processes() if " task executor " in title]
        return sorted(titles)

    def _tasks(self) -> dict[str, int]:
        """Tasks that each executor computes, by its id, as its last word told."""
        tasks: dict[str, int] = {}
        try:
            lines = self._house.client.get("/metrics").text.splitlines()
        except httpx.HTTPError:
            return tasks
        for line in lines:
            if line.startswith("vllm:num_requests_running{"):
                engine = line.split('engine="')[1].split('"')[0]
                tasks[engine] = int(float(line.rsplit(" ", 1)[1]))
        return tasks

    def _one(self, name: str, number: int) -> None:
        if titles := self._executors():
            self._harm(name, [self._rand.choice(titles)], number)


def _kill_with_agent(saboteur: Saboteur, name: str) -> None:
    titles = saboteur._executors()
    if titles:
        saboteur._harm(name, ["tercet: node agent", saboteur._rand.choice(titles)])


_ACTS: dict[str, Callable[[Saboteur, str], None]] = {
    "nothing, to compare": lambda who, name: who._spare(name),
    "kill an executor": lambda who, name: who._one(name, signal.SIGKILL),
    "stop an executor": lambda who, name: who._one(name, signal.SIGSTOP),
    "kill every executor": lambda who, name: who._harm(name, who._executors()),
    "kill the agent": lambda who, name: who._harm(name, ["tercet: node agent"]),
    "kill the zygote": lambda who, name: who._harm(name, ["tercet: zygote"]),
    "kill agent and executor": _kill_with_agent,
    "stop the agent": lambda who, name: who._harm(name, ["tercet: node agent"], signal.SIGSTOP),
    "stop the zygote": lambda who, name: who._harm(name, ["tercet: zygote"], signal.SIGSTOP),
    "kill the front": lambda who, name: who._harm(name, ["tercet: front"]),
}
