"""A crowd of clients of every kind: patient ones, and those that leave at any moment in any way."""

import asyncio
import json
from collections import Counter
from random import Random

END_S = 120.0
"""An answer that has not ended by then never will."""
PAUSES_S = (0.0, 0.0, 0.001, 0.003, 0.01, 0.05)


def any_request(rand: Random) -> bytes:
    """Write a short request of any shape to either endpoint."""
    body: dict[str, object] = {
        "model": "tiny",
        "max_tokens": rand.choice([1, 1, 2, 4, 8, 40]),
        "stream": rand.random() < 0.6,
        "n": rand.choice([1, 1, 1, 1, 3]),
        "ignore_eos": rand.random() < 0.5,
        "temperature": rand.choice([0, 0.7]),
    }
    if rand.random() < 0.2:
        body["stop"] = ["a", "bc"]
    if rand.random() < 0.2:
        body["stop_token_ids"] = rand.sample(range(256), 20)
    if rand.random() < 0.3:
        content = "Tell me more. " * rand.choice([1, 4, 30])
        body |= {"messages": [{"role": "user", "content": content}]}
        body |= rand.choice([{}, {"logprobs": True, "top_logprobs": 3}])
        return _written("/v1/chat/completions", body)
    prompts = (
        "hello",
        [40] * 32,
        rand.choices(range(256), k=rand.choice([3, 90, 400])),
        ["a", [4]],
    )
    body |= {"prompt": rand.choice(prompts)}
    body |= rand.choice([{}, {"logprobs": 3}, {"echo": True}, {"max_tokens": 10**6}])
    return _written("/v1/completions", body)


def _written(path: str, body: dict[str, object]) -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


class Crowd:
    """Counts what became of every request."""

    def __init__(self, url: str, rand: Random) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._address = host, int(port)
        self._rand = rand
        self.outcomes: Counter[str] = Counter()
        """By HTTP status, `left`, `unended` (the connection closed before the answer was whole)."""

    def come(self, count: int, *, at_once: int) -> None:
        """Let so many requests be made, and wait until all clients are gone."""
        asyncio.run(self._come(count, at_once))

    async def _come(self, count: int, at_once: int) -> None:
        numbers = iter(range(count))

        async def visit() -> None:
            for _ in numbers:
                await asyncio.wait_for(self._one(), END_S)

        await asyncio.gather(*(visit() for _ in range(at_once)))

    async def _one(self) -> None:
        rand = self._rand
        reader, writer = await asyncio.open_connection(*self._address)
        sent = any_request(rand)
        way = rand.choice(["stay"] * 6 + ["leave", "half", "first piece", "behind"])
        try:
            if way == "half":
                writer.write(sent[: rand.randrange(len(sent))])
                await self._leave(writer)
                return
            writer.write(sent)
            if way == "stay":
                self.outcomes[await _whole(reader)] += 1
                return
            if way == "behind":
                writer.write(any_request(rand))
            if way == "first piece":
                await reader.read(200)
            await self._leave(writer)
        finally:
            writer.close()

    async def _leave(self, writer: asyncio.StreamWriter) -> None:
        self.outcomes["left"] += 1
        await asyncio.sleep(self._rand.choice(PAUSES_S))
        if self._rand.random() < 0.5:
            writer.transport.abort()


async def _whole(reader: asyncio.StreamReader) -> str:
    """Read one answer to its end; give its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = head[9:12].decode()
    fields = dict(line.split(b": ", 1) for line in head.strip().split(b"\r\n")[1:])
    if b"content-length" in fields:
        await reader.readexactly(int(fields[b"content-length"]))
        return status
    data = b""
    while not data.endswith(b"0\r\n\r\n"):
        piece = await reader.read(65536)
        if not piece:
            return "unended"
        data += piece
    return status if data.count(b"data: [DONE]") == 1 else "unended"
