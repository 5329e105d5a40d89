"""Kills and stops processes of a tree at random moments, and remembers what it did when."""

import signal
import threading
import time
from collections.abc import Callable, Mapping
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
    is_of_prompts: bool = False
    """They are tasks that wait for their first token, which others are to compute."""


Deed = Callable[["Saboteur", str], None]
"""Does one act of this name, and adds it to `done`."""


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
        self,
        house: House,
        rand: Random,
        *,
        pause_s: tuple[float, float],
        acts: dict[str, int],
        more: Mapping[str, Deed] | None = None,
    ) -> None:
        """`acts`: how often each in a deck that is shuffled and dealt, again and again; `more`:
        deeds beside those that are known here.
        """
        self.done: list[Act] = []
        self.house = house
        self.rand = rand
        self._deeds = {**DEEDS, **(more or {})}
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
        while not self._over.wait(self.rand.uniform(*self._pause_s)):
            deck = deck or self.rand.sample(self._acts, len(self._acts))
            name = deck.pop()
            try:
                self._deeds[name](self, name)
            except ProcessLookupError:
                continue  # it died before it could be killed

    def note(self, name: str, num_tasks: int, *, is_of_prompts: bool = False) -> None:
        """Remember what is done now."""
        self.done.append(Act(time.monotonic(), name, num_tasks, is_of_prompts))

    def harm(self, name: str, titles: list[str], number: int = signal.SIGKILL) -> None:
        """Send a signal to all processes of these titles."""
        every = self.house.processes()
        victims = [pid for title in titles for pid in every.get(title, ())]
        if not victims:
            return
        tasks = self.tasks()
        self.note(name, sum(tasks.get(title.split()[3], 0) for title in titles if "exec" in title))
        for pid in victims:
            self.house.kill(pid, number)

    def executors(self) -> list[str]:
        """Titles of all executors of the house."""
        titles = [title for title in self.house.processes() if " task executor " in title]
        return sorted(titles)

    def tasks(self) -> dict[str, int]:
        """Tasks that each executor computes, by its id, as its last word told."""
        tasks: dict[str, int] = {}
        try:
            lines = self.house.client.get("/metrics").text.splitlines()
        except httpx.HTTPError:
            return tasks
        for line in lines:
            if line.startswith("vllm:num_requests_running{"):
                engine = line.split('engine="')[1].split('"')[0]
                tasks[engine] = int(float(line.rsplit(" ", 1)[1]))
        return tasks

    def spare(self, name: str) -> None:
        """Do nothing to any process: all streams are concerned."""
        self.note(name, sum(self.tasks().values()))

    def one(self, name: str, number: int) -> None:
        """Send a signal to any one executor."""
        if titles := self.executors():
            self.harm(name, [self.rand.choice(titles)], number)


def _kill_with_agent(saboteur: Saboteur, name: str) -> None:
    titles = saboteur.executors()
    if titles:
        saboteur.harm(name, ["tercet: node agent", saboteur.rand.choice(titles)])


DEEDS: Mapping[str, Deed] = {
    "nothing, to compare": lambda who, name: who.spare(name),
    "kill an executor": lambda who, name: who.one(name, signal.SIGKILL),
    "stop an executor": lambda who, name: who.one(name, signal.SIGSTOP),
    "kill every executor": lambda who, name: who.harm(name, who.executors()),
    "kill the agent": lambda who, name: who.harm(name, ["tercet: node agent"]),
    "kill the zygote": lambda who, name: who.harm(name, ["tercet: zygote"]),
    "kill agent and executor": _kill_with_agent,
    "stop the agent": lambda who, name: who.harm(name, ["tercet: node agent"], signal.SIGSTOP),
    "stop the zygote": lambda who, name: who.harm(name, ["tercet: zygote"], signal.SIGSTOP),
    "kill the front": lambda who, name: who.harm(name, ["tercet: front"]),
}
