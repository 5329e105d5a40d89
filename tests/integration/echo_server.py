"""A real HTTP server on a loopback port over the echo service, in a thread of its own."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

from tercet.api.app import create_app
from tercet.api.config import ApiConfig
from tercet.api.echo import EchoService
from tercet.api.server import HttpServer
from tercet.api.service import ServedModel
from tercet.observe.metrics import Metrics
from tercet.text.chat import open_chat_template
from tercet.text.load import load_codec

CODEC = load_codec("bytes")
MODEL = ServedModel(
    names=("tiny",),
    created=1_700_000_000,
    context_max=2048,
    vocab=260,
    codec=CODEC,
    template=open_chat_template(CODEC),
    end_ids=(257, 259),
)


@contextlib.contextmanager
def echo_server(config: ApiConfig | None = None, **echo) -> Iterator[tuple[str, EchoService]]:
    """Serve for as long as the context lasts; gives the address and the service behind it."""
    service = EchoService((MODEL,), **echo)
    listening = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    started = threading.Event()
    ends: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        app = create_app(service, config or ApiConfig(), metrics=Metrics())
        server = HttpServer(app, listening, config=config or ApiConfig())
        end = asyncio.Event()
        ends.append((asyncio.get_running_loop(), end))
        await server.open()
        started.set()
        await end.wait()
        await server.close(within_s=2.0)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield address, service
    finally:
        loop, end = ends[0]
        loop.call_soon_threadsafe(end.set)
        thread.join(10)
        listening.close()
