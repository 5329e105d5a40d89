"""Streaming clients that count tokens: what was asked, what came, and what should have come."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import msgspec
from house import POISON

NEAR_TIE = 1e-3
"""Two best scores closer than this may swap places in another company (issue 2, point 2)."""
END_S = 600.0
"""A stream that has not ended by then never will."""
PROMPT_LENGTHS = (3, 17, 40, 120)
NUM_TOP = 20


@dataclass(frozen=True)
class Ask:
    """One request for a greedy completion of exactly `max_tokens` tokens."""

    prompt: tuple[int, ...]
    max_tokens: int
    frequency_penalty: float = 0.0

    def body(self, *, model: str, logprobs: int | None = None) -> bytes:
        return msgspec.json.encode(
            {
                "model": model,
                "prompt": self.prompt,
                "max_tokens": self.max_tokens,
                "frequency_penalty": self.frequency_penalty,
                "logit_bias": {str(POISON): -100},
                "logprobs": logprobs,
                "temperature": 0,
                "ignore_eos": True,
                "return_token_ids": True,
                "stream": True,
            }
        )


def varied_asks(rand: Random, count: int, *, vocab: int, tokens_max: int) -> list[Ask]:
    """Prompts of many lengths, some with a beginning in common, half of them with a penalty."""
    common = tuple(rand.randrange(1, vocab) for _ in range(40))
    asks = []
    for number in range(count):
        own = tuple(rand.randrange(1, vocab) for _ in range(rand.choice(PROMPT_LENGTHS)))
        prompt = common + own if number % 3 == 0 else own
        prompt = tuple(POISON + 1 if token == POISON else token for token in prompt)
        asks.append(
            Ask(
                prompt,
                rand.randint(tokens_max // 3, tokens_max),
                frequency_penalty=0.2 if number % 2 else 0.0,
            )
        )
    return asks


class Logprobs(msgspec.Struct):
    tokens: list[str]
    top_logprobs: list[dict[str, float]]


class Choice(msgspec.Struct):
    finish_reason: str | None
    token_ids: list[int] = []
    logprobs: Logprobs | None = None


class Error(msgspec.Struct):
    message: str


class Chunk(msgspec.Struct):
    choices: list[Choice] = []
    error: Error | None = None


_chunks = msgspec.json.Decoder(Chunk)


@dataclass
class Outcome:
    """What one client saw of one stream."""

    ask: Ask
    began: float
    tokens: list[int] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    """When tokens came, one entry a piece."""
    names: list[str] = field(default_factory=list)
    tops: list[dict[str, float]] = field(default_factory=list)
    finishes: list[str] = field(default_factory=list)
    num_done: int = 0
    error: str = ""
    broken: str = ""
    left: bool = False

    def take(self, event: bytes) -> None:
        payload = event.removeprefix(b"data: ")
        if payload == b"[DONE]":
            self.num_done += 1
            return
        chunk = _chunks.decode(payload)
        if chunk.error is not None:
            self.error = chunk.error.message
        for choice in chunk.choices:
            if choice.token_ids:
                self.tokens += choice.token_ids
                self.arrivals.append(time.monotonic())
            if choice.logprobs is not None:
                self.names += choice.logprobs.tokens
                self.tops += choice.logprobs.top_logprobs
            if choice.finish_reason:
                self.finishes.append(choice.finish_reason)


class Clients:
    """Many clients of one server, each with one stream at a time."""

    def __init__(self, port: int, model: str) -> None:
        self._port = port
        self._model = model
        self.outcomes: list[Outcome] = []
        """All streams that have ended."""

    async def ask(
        self, ask: Ask, *, logprobs: int | None = None, leave_after_s: float | None = None
    ) -> Outcome:
        """Read one stream to its end, or go away after a while; nothing is raised."""
        outcome = Outcome(ask, time.monotonic())
        body = ask.body(model=self._model, logprobs=logprobs)
        patience = END_S if leave_after_s is None else leave_after_s
        try:
            async with asyncio.timeout(patience):
                await self._read(body, outcome)
        except TimeoutError:
            outcome.left = leave_after_s is not None
            outcome.broken = "" if outcome.left else f"no end within {END_S} s"
        except (OSError, asyncio.IncompleteReadError) as error:
            outcome.broken = repr(error)
        self.outcomes.append(outcome)
        return outcome

    async def references(self, asks: Sequence[Ask]) -> "dict[Ask, Reference]":
        """Give what each is answered while nothing disturbs."""
        answers = await asyncio.gather(*(self.ask(ask, logprobs=NUM_TOP) for ask in asks))
        for answer in answers:
            assert not (wrong := ended_wrong(answer)), wrong
        self.outcomes.clear()
        return {answer.ask: Reference(answer) for answer in answers}

    async def crowd(
        self, rand: Random, asks: Sequence[Ask], *, count: int, for_s: float, leaving: float = 0.0
    ) -> None:
        """Let so many clients ask again and again for a time; their last streams end too.

        `leaving` is the share of streams that are left at a random moment.
        """
        until = time.monotonic() + for_s

        async def client(own: Random) -> None:
            while time.monotonic() < until:
                leaves = own.random() < leaving
                after = own.choice((0.01, 0.1, 1.0, 4.0)) * own.random() if leaves else None
                await self.ask(own.choice(asks), leave_after_s=after)

        await asyncio.gather(*(client(Random(rand.random())) for _ in range(count)))

    async def _read(self, body: bytes, outcome: Outcome) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 22)
        try:
            head = "POST /v1/completions HTTP/1.1\r\nHost: chaos\r\nConnection: close\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            status = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1]
            if status != b"200":
                outcome.error = f"{status.decode()} {(await reader.read()).decode()}"
                return
            pending = b""
            while size := int(await reader.readuntil(b"\r\n"), 16):
                pending += (await reader.readexactly(size + 2))[:-2]
                *events, pending = pending.split(b"\n\n")
                for event in events:
                    outcome.take(event)
        finally:
            writer.transport.abort()


def ended_wrong(outcome: Outcome) -> str:
    """Say what is wrong with the end of a stream that was to end well, if anything is."""
    if outcome.error or outcome.broken:
        return outcome.error or outcome.broken
    if outcome.finishes != ["length"] or outcome.num_done != 1:
        return f"{outcome.finishes} finishes, {outcome.num_done} times done"
    if len(outcome.tokens) != outcome.ask.max_tokens:
        return f"{len(outcome.tokens)} tokens of {outcome.ask.max_tokens}"
    return ""


class Reference:
    """The undisturbed answer, and how far others must equal it."""

    def __init__(self, answer: Outcome) -> None:
        self.tokens = answer.tokens
        margins = _margins(answer)
        ties = [at for at, margin in enumerate(margins) if margin < NEAR_TIE]
        self.num_ties = len(ties)
        self.exact = ties[0] if ties else len(self.tokens)
        """So many tokens are the same in every run."""

    def deviation(self, outcome: Outcome) -> str:
        """Say where tokens differ that must not, if they do; `outcome` may be a beginning."""
        pairs = zip(self.tokens[: self.exact], outcome.tokens, strict=False)
        for at, (expected, got) in enumerate(pairs):
            if expected != got:
                return f"token {at} is {got}, not {expected}"
        return ""

    def strays(self, outcome: Outcome) -> bool:
        """Whether tokens differ anywhere, be it behind a near-tie."""
        return outcome.tokens != self.tokens[: len(outcome.tokens)]


def _margins(answer: Outcome) -> list[float]:
    """How far the best score leads at each position; a bound from below.

    Log-probabilities are of raw scores: penalties are taken off here. Whatever is not among the
    top ones scores at most what the last of them does.
    """
    counts: Counter[str] = Counter()
    margins = []
    for name, top in zip(answer.names, answer.tops, strict=True):
        unseen = min(top.values())
        scores = {
            other: value - answer.ask.frequency_penalty * counts[other]
            for other, value in top.items()
        }
        best = scores.pop(name)
        margins.append(best - max(unseen, *scores.values()) if scores else 0.0)
        counts[name] += 1
    return margins
