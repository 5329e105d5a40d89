"""A minimal OpenAI-compatible server over OpenVINO GenAI's continuous batching, which has none.

    python -m benchmarks.peers.drivers.openvino_server MODEL PORT

One thread steps the pipeline; the loop reads requests and writes events. It does no more than a
server must: its overhead is a lower bound of what a whole one would have.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import openvino
import openvino_genai as genai

from benchmarks.peers.drivers.openvino import Handle, generation, scheduling

HEAD = (
    "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n"
    "connection: close\r\n\r\n"
)


@dataclass(eq=False)
class Answer:
    """A request that the pipeline works on."""

    handle: Handle
    max_tokens: int
    prompt_tokens: int
    loop: asyncio.AbstractEventLoop
    pieces: "asyncio.Queue[list[int]]" = field(default_factory=asyncio.Queue)
    taken: int = 0


class Stepping:
    """The pipeline and the thread that steps it."""

    def __init__(self, folder: str) -> None:
        self._pipeline = genai.ContinuousBatchingPipeline(folder, scheduling(), "CPU", {})
        self.tokenizer = self._pipeline.get_tokenizer()
        self._open: list[Answer] = []
        self._work = threading.Condition()
        self._next = 0
        threading.Thread(target=self._step_for_ever, daemon=True).start()

    def ask(self, prompt: list[int], max_tokens: int) -> Answer:
        """Have a prompt answered; pieces come into its queue."""
        ids = openvino.Tensor(np.array([prompt], np.int64))
        with self._work:
            self._next += 1
            handle = self._pipeline.add_request(self._next, ids, generation(max_tokens))
            answer = Answer(handle, max_tokens, len(prompt), asyncio.get_running_loop())
            self._open.append(answer)
            self._work.notify()
        return answer

    def _step_for_ever(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self._open)
                waiting = list(self._open)
            self._pipeline.step()
            for answer in waiting:
                if answer.handle.can_read():
                    self._hand_on(answer)

    def _hand_on(self, answer: Answer) -> None:
        ids = [
            int(token) for piece in answer.handle.read().values() for token in piece.generated_ids
        ]
        answer.taken += len(ids)
        answer.loop.call_soon_threadsafe(answer.pieces.put_nowait, ids)
        if answer.taken >= answer.max_tokens:
            with self._work:
                self._open.remove(answer)


class Server:
    """Routes: GET /v1/models and POST /v1/completions, streamed."""

    def __init__(self, stepping: Stepping) -> None:
        self._stepping = stepping

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the connection's one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            (int(line.split(":")[1]) for line in head.lower().splitlines() if "-length:" in line), 0
        )
        body = await reader.readexactly(length)
        if head.startswith("GET"):
            writer.write(HEAD.format(kind="application/json").encode())
            _chunk(writer, json.dumps({"data": [{"id": "model"}]}))
        else:
            writer.write(HEAD.format(kind="text/event-stream").encode())
            await self._complete(json.loads(body), writer)
        _chunk(writer, "")  # the end
        await writer.drain()
        writer.close()

    async def _complete(self, request: Mapping[str, object], writer: asyncio.StreamWriter) -> None:
        prompt, max_tokens = request["prompt"], request["max_tokens"]
        if not isinstance(prompt, list) or not isinstance(max_tokens, int):
            raise TypeError("a prompt of token ids and max_tokens are served, nothing else")
        answer = self._stepping.ask(prompt, max_tokens)
        ids: list[int] = []
        said = ""
        while len(ids) < max_tokens:
            ids += await answer.pieces.get()
            text = self._stepping.tokenizer.decode(ids)
            done = len(ids) >= max_tokens
            _event(writer, text[len(said) :] or " ", "length" if done else None)
            said = text
            await writer.drain()
        usage = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": len(ids)}
        _chunk(writer, f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n")
        _chunk(writer, "data: [DONE]\n\n")


def _event(writer: asyncio.StreamWriter, text: str, finish: str | None) -> None:
    choice = {"index": 0, "text": text, "finish_reason": finish}
    _chunk(writer, f"data: {json.dumps({'choices': [choice]})}\n\n")


def _chunk(writer: asyncio.StreamWriter, text: str) -> None:
    data = text.encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def main() -> None:
    """Serve until killed."""
    folder, port = sys.argv[1:3]
    server = await asyncio.start_server(Server(Stepping(folder)).talk, "127.0.0.1", int(port))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
