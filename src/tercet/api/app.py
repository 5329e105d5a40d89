"""Puts the endpoints together: `create_app` gives the ASGI application of one front."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tercet.api.chat import read_chat
from tercet.api.completions import read_completion
from tercet.api.config import ApiConfig
from tercet.api.control import Controls, Roles, Status
from tercet.api.desk import Desk
from tercet.api.edge import Edge
from tercet.api.errors import error_body, headers_of, status_of
from tercet.api.fields import CHAT, COMPLETIONS
from tercet.api.generation import Generation
from tercet.api.models import Models
from tercet.api.outcomes import Ended
from tercet.api.probes import Exposition, Probe, Version
from tercet.api.service import Service
from tercet.api.threads import LoopThreads
from tercet.api.tokenizing import Tokenizing
from tercet.api.tokens import Detokenize, Tokenize
from tercet.base.errors import Invalid
from tercet.observe.metrics import Metrics


def create_app(
    service: Service, config: ApiConfig, *, metrics: Metrics, controls: Controls | None = None
) -> ASGIApp:
    """Make the application; it needs no lifespan and starts nothing but threads that tokenize.

    Without `controls` there is nothing to look at or to set.
    """
    desk = Desk(
        config, Tokenizing(config, LoopThreads(config.tokenizer_threads)), service.new_job_id
    )
    completions = Generation(service, metrics, desk=desk, table=COMPLETIONS, read=read_completion)
    chat = Generation(service, metrics, desk=desk, table=CHAT, read=read_chat)
    models = Models(service)
    routes = [
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{id:path}", models, methods=["GET"]),
        Route("/tokenize", Tokenize(service, desk), methods=["POST"]),
        Route("/detokenize", Detokenize(service, desk), methods=["POST"]),
        Route("/metrics", Exposition(metrics), methods=["GET"]),
        Route("/version", Version(), methods=["GET"]),
    ]
    routes += [
        Route(path, Probe(service, kind), methods=["GET"])
        for kind, paths in _PROBES.items()
        for path in paths
    ]
    if controls is not None:
        roles = Roles(service, controls, config)
        routes.append(Route("/tercet/status", Status(controls), methods=["GET"]))
        routes.append(Route("/tercet/roles", roles, methods=["PUT"]))
    refusals = _Refusals(retry_after_s=config.retry_after_s)
    app = Starlette(
        routes=routes,
        exception_handlers={
            Invalid: refusals.invalid,
            Ended: refusals.ended,
            HTTPException: refusals.routing,
            Exception: refusals.unforeseen,
        },
    )
    app.router.redirect_slashes = False
    return Edge(app, config, metrics=metrics, routes=frozenset(route.path for route in routes))


_PROBES = {
    "health": ("/health", "/ping"),
    "live": ("/live", "/liveness"),
    "ready": ("/ready", "/readiness"),
}


class _Refusals:
    """Every way to say no, in one shape; asynchronous, or each would take a thread."""

    def __init__(self, *, retry_after_s: int) -> None:
        self._retry_after_s = retry_after_s

    async def invalid(self, request: Request, error: Exception) -> Response:
        """Answer with what the client got wrong."""
        del request
        if not isinstance(error, Invalid):
            raise error
        return self._respond(
            status_of(error), error.sentence, code=error.code, parameter=error.parameter
        )

    async def ended(self, request: Request, error: Exception) -> Response:
        """Answer with what the house could not do."""
        del request
        if not isinstance(error, Ended):
            raise error
        return self._respond(error.status, error.sentence, code=error.code)

    async def routing(self, request: Request, error: Exception) -> Response:
        """Answer that there is no such route, or not with this method."""
        if not isinstance(error, HTTPException):
            raise error
        where = f"{request.method} {request.url.path}"[:200]
        if error.status_code == 404:
            return self._respond(404, f"There is no route {where}.", code="route_not_found")
        if error.status_code == 405:
            answer = self._respond(
                405, f"The method of {where} is not allowed here.", code="method_not_allowed"
            )
            answer.headers.update(error.headers or {})
            return answer
        return self._respond(error.status_code, error.detail, code=None)

    async def unforeseen(self, request: Request, error: Exception) -> Response:
        """Answer for a mistake of ours; the server's log has the rest."""
        del request, error
        return self._respond(500, "The server made a mistake.", code="internal_error")

    def _respond(
        self, status: int, sentence: str, *, code: str | None, parameter: str | None = None
    ) -> Response:
        body = error_body(status, sentence, code=code, parameter=parameter)
        response = Response(body, status, media_type="application/json")
        response.raw_headers.extend(
            headers_of(status, code=code, retry_after_s=self._retry_after_s)
        )
        return response
