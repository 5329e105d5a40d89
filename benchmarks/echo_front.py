"""The HTTP front alone: the same application over the service that echoes, on the given port."""

import asyncio
import socket
import sys

import uvloop

from tercet.api.app import create_app
from tercet.api.config import ApiConfig
from tercet.api.echo import EchoService
from tercet.api.server import HttpServer
from tercet.api.service import ServedModel
from tercet.observe.metrics import Metrics
from tercet.text.load import load_codec


async def serve(port: int) -> None:
    """Serve until the process is killed."""
    model = ServedModel(
        names=("bench",),
        created=0,
        context_max=8192,
        vocab=49_152,
        codec=load_codec("bytes"),
        template=None,
    )
    config = ApiConfig()
    app = create_app(EchoService((model,)), config, metrics=Metrics())
    listening = socket.create_server(("127.0.0.1", port), backlog=2048)
    await HttpServer(app, listening, config=config).open()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
