"""The endpoints that write text: read, submit, answer whole or as a stream."""

from collections.abc import Awaitable
from typing import Protocol

from starlette.types import Receive, Scope, Send

from tercet.api.answers import Collected, header, whole
from tercet.api.ask import Ask
from tercet.api.body import Disconnected, read_object
from tercet.api.desk import Desk
from tercet.api.edge import ticket_of
from tercet.api.errors import error_body, send_body
from tercet.api.events import EventWriter, error_event
from tercet.api.exchange import Exchange
from tercet.api.fields import Fields, Table
from tercet.api.models import find_model
from tercet.api.outcomes import Ended
from tercet.api.service import ServedModel, Service
from tercet.api.ticket import Ticket
from tercet.api.tokenizing import Tokenizing
from tercet.observe.metrics import Metrics

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Reader(Protocol):
    """Makes an ask of an endpoint's fields, or raises `Invalid`."""

    def __call__(
        self, fields: Fields, model: ServedModel, *, desk: Desk, ticket: Ticket
    ) -> Awaitable[Ask]: ...


class Generation:
    """One endpoint, as an ASGI application; `table` and `read` are what tells two apart."""

    def __init__(
        self, service: Service, metrics: Metrics, *, desk: Desk, table: Table, read: Reader
    ) -> None:
        self._service = service
        self._metrics = metrics
        self._desk = desk
        self._table = table
        self._read = read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ticket = ticket_of(scope)
        try:
            body = await read_object(scope, receive, self._desk.config)
        except Disconnected:
            return
        fields = Fields(body, self._table)
        model = find_model(fields, self._service, required=True)
        ask = await self._read(fields, model, desk=self._desk, ticket=ticket)
        with Exchange(
            ask,
            self._service,
            receive,
            metrics=self._metrics,
            pieces_max=self._desk.config.pieces_max,
        ) as exchange:
            if ask.delivery.stream:
                await _stream(exchange, send, nonce=ticket.nonce)
            else:
                pool = self._desk.tokenizing
                await _answer(exchange, send, nonce=ticket.nonce, tokenizing=pool)


async def _answer(exchange: Exchange, send: Send, *, nonce: str, tokenizing: Tokenizing) -> None:
    ask = exchange.ask
    collected = [Collected() for _ in exchange.choices]
    while not exchange.over:
        for delta in await exchange.next():
            collected[delta.index].add(delta)
        if exchange.gone:
            return
    head = header(ask, nonce=nonce)
    size = sum(parts.size for parts in collected)
    body = await tokenizing.call(size, lambda: whole(ask, head, exchange.choices, collected))
    if not exchange.gone:
        await send_body(send, 200, body)


async def _stream(exchange: Exchange, send: Send, *, nonce: str) -> None:
    """Send events; what fails before the first of them is raised, and becomes a status."""
    ask = exchange.ask
    deltas = await exchange.next()
    if exchange.gone:
        return
    writer = EventWriter(ask, header(ask, nonce=nonce), exchange.choices)
    await send({"type": "http.response.start", "status": 200, "headers": list(_STREAM_HEADERS)})
    while not exchange.gone:
        events = writer.write(deltas)
        if exchange.over:
            await send({"type": "http.response.body", "body": events + writer.end()})
            return
        if events:
            await send({"type": "http.response.body", "body": events, "more_body": True})
        try:
            deltas = await exchange.next()
        except Ended as outcome:
            body = error_body(outcome.status, outcome.sentence, code=outcome.code, parameter=None)
            await send({"type": "http.response.body", "body": error_event(body)})
            return
