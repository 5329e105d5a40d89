"""Many requests in mixed company, and everything that a client can see of their answers."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from house import House, until

VOCAB = 250
ROLES = ("prefill", "decode")
COMMON = 150
"""Tokens that a third of the prompts begin with."""


def requests(count: int, *, seed: int, tokens: int = 48) -> list[dict[str, Any]]:
    """Prompts of many lengths, greedy and sampled, with penalties, stops and several choices."""
    rand = random.Random(seed)
    common = [rand.randrange(1, VOCAB) for _ in range(COMMON)]
    made = []
    for number in range(count):
        own = [rand.randrange(1, VOCAB) for _ in range(rand.choice((5, 33, 80, 190, 400)))]
        body: dict[str, Any] = {
            "model": "tiny",
            "prompt": (common if number % 3 == 0 else []) + own,
            "max_tokens": rand.randint(tokens // 2, tokens),
            "temperature": 0 if number % 2 else 0.8,
            "seed": number,
            "logprobs": 3,
            "return_token_ids": True,
        }
        if number % 5 == 0:
            body |= {"n": 2, "frequency_penalty": 0.4}
        if number % 7 == 0:
            body["stop_token_ids"] = [rand.randrange(1, VOCAB) for _ in range(12)]
        else:
            body["ignore_eos"] = True
        made.append(body)
    return made


def answer(house: House, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Every choice: tokens, logprobs, why it ended."""
    response = house.client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return [
        {name: choice[name] for name in ("token_ids", "logprobs", "finish_reason", "text")}
        for choice in response.json()["choices"]
    ]


def answers(house: House, bodies: list[dict[str, Any]], *, at_once: int = 24) -> list[Any]:
    """All answers, many at a time."""
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda body: answer(house, body), bodies))


class Answering:
    """Answers that come while a test does something to the house."""

    def __init__(self, house: House, bodies: list[dict[str, Any]]) -> None:
        self.given: list[Any] = []
        self._thread = threading.Thread(target=self._work, args=(house, bodies))
        self._thread.start()

    def _work(self, house: House, bodies: list[dict[str, Any]]) -> None:
        self.given = answers(house, bodies)

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def finish(self) -> list[Any]:
        self._thread.join()
        return self.given


def status(house: House) -> dict[str, Any]:
    found: dict[str, Any] = house.client.get("/tercet/status").json()
    return found


def transfers(house: House) -> dict[str, Any]:
    found: dict[str, Any] = status(house)["transfers"]
    return found


def serves(house: House, count: int) -> bool:
    """Whether so many executors are ready, connected, and linked with those they need."""
    ready = [one for one in status(house)["executors"] if one["state"] == "ready"]
    if len(ready) != count or not all(one["connected"] and one["cache"] for one in ready):
        return False
    others = {role: count - sum(one["role"] == role for one in ready) for role in ROLES}
    return all(
        one["cache"]["peers"] >= (others["prefill"] if one["role"] == "prefill" else 1)
        for one in ready
    )


def quiet(house: House) -> None:
    """Wait until every executor has all its blocks again: free ones, or cached and held by nobody.

    Leases of those who died expire; nothing else may last.
    """

    def free() -> bool:
        executors = [one for one in status(house)["executors"] if one["state"] == "ready"]
        books = [one["cache"] for one in executors]
        return bool(books) and all(
            one and one["free"] + one["cached"] == one["total"] and not one["leases"]
            for one in books
        )

    until(free, "every block is free or cached")


def executors_of(house: House, role: str) -> list[int]:
    """Process ids of the executors that serve as this."""
    found = []
    for title, pids in house.processes().items():
        if title.startswith("tercet: task executor") and f" {role} " in title:
            found += pids
    return sorted(found)
