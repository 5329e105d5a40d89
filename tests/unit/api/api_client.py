"""Drives the application without a server: one call, every message it sent, what it asked for."""

import asyncio
import json
from dataclasses import dataclass, field

from tercet.api.app import create_app
from tercet.api.config import ApiConfig
from tercet.api.echo import EchoService
from tercet.api.service import ServedModel
from tercet.observe.metrics import Metrics
from tercet.text.chat import open_chat_template
from tercet.text.load import load_codec

CODEC = load_codec("bytes")
CONTEXT = 512
MODEL = ServedModel(
    names=("tiny", "tiny-alias"),
    created=1_700_000_000,
    context_max=CONTEXT,
    vocab=260,
    codec=CODEC,
    template=open_chat_template(CODEC),
    end_ids=(257, 259),
)
COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"


@dataclass
class Answer:
    status: int = 0
    headers: dict = field(default_factory=dict)
    chunks: list = field(default_factory=list)
    whole: bool = False

    @property
    def body(self):
        return b"".join(self.chunks)

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    @property
    def events(self):
        """The JSON of every event; the mark of the end must be the last, once."""
        lines = self.body.decode().split("\n\n")
        assert lines.pop() == ""
        assert lines.pop() == "data: [DONE]"
        assert all(line.startswith("data: ") for line in lines)
        return [json.loads(line.removeprefix("data: ")) for line in lines]


class House:
    """An application over an echo service."""

    def __init__(self, config=None, *, metrics=None, **echo):
        self.service = EchoService((MODEL,), **echo)
        self.metrics = Metrics() if metrics is None else metrics
        self.app = create_app(self.service, config or ApiConfig(), metrics=self.metrics)

    def post(self, path, body, **options):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return asyncio.run(self.call("POST", path, content, **options))

    def get(self, path, **options):
        return asyncio.run(self.call("GET", path, b"", **options))

    def complete(self, **fields):
        return self.post(COMPLETIONS, {"model": "tiny", "prompt": "abcdef", **fields})

    def chat(self, text="Hello", **fields):
        messages = [{"role": "user", "content": text}]
        return self.post(CHAT, {"model": "tiny", "messages": messages, **fields})

    async def call(
        self, method, path, content, *, headers=(), leave_after=None, slices=1, into=None
    ):
        """One request. `leave_after`: the client goes away after so many sent messages."""
        answer = Answer() if into is None else into
        left = asyncio.Event()
        if leave_after == 0:
            left.set()
        size = max(1, -(-len(content) // slices))
        parts = [content[at : at + size] for at in range(0, len(content), size)] or [b""]

        async def receive():
            if parts:
                part = parts.pop(0)
                return {"type": "http.request", "body": part, "more_body": bool(parts)}
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            else:
                answer.chunks.append(message.get("body", b""))
                answer.whole = not message.get("more_body", False)
            if answer.whole or (leave_after is not None and len(answer.chunks) >= leave_after):
                left.set()
            await asyncio.sleep(0)

        base = {} if any(name == "content-type" for name, _ in headers) else JSON
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(k.encode(), v.encode()) for k, v in [*base.items(), *headers]],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
        }
        await self.app(scope, receive, send)
        await asyncio.sleep(0)
        return answer


JSON = {"content-type": "application/json"}
