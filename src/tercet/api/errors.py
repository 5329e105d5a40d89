"""One table from what went wrong to what the client is told, in OpenAI's shape.

Sentences name the parameter, the value and what was expected; never a path, an address or a stack.
"""

import msgspec
from starlette.types import Send

from tercet.api.outcomes import Ended
from tercet.base.errors import Invalid
from tercet.jobs.job import FailureCode

Headers = list[tuple[bytes, bytes]]

STATUS_OF_CODE = {
    "invalid_api_key": 401,
    "model_not_found": 404,
    "route_not_found": 404,
    "method_not_allowed": 405,
    "body_timeout": 408,
    "body_too_large": 413,
    "unsupported_media_type": 415,
}
"""Every other code of an `Invalid` is 400."""

TYPE_OF_STATUS = {401: "authentication_error", 429: "rate_limit_error"}


def status_of(problem: Invalid) -> int:
    return STATUS_OF_CODE.get(problem.code, 400)


def error_body(status: int, sentence: str, *, code: str | None, parameter: str | None) -> bytes:
    """Make the JSON object `{"error": {...}}` of OpenAI."""
    kind = TYPE_OF_STATUS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return msgspec.json.encode(
        {"error": {"message": sentence, "type": kind, "param": parameter, "code": code}}
    )


def headers_of(status: int, *, code: str | None, retry_after_s: int) -> Headers:
    """Give the headers that a refusal of this status carries besides its body's."""
    if code == FailureCode.EXECUTOR_LOST:
        return [(b"x-should-retry", b"false")]  # SDKs would bring the culprit back
    if status == 503:
        return [(b"retry-after", str(retry_after_s).encode())]
    if status == 401:
        return [(b"www-authenticate", b"Bearer")]
    return []


async def send_body(
    send: Send,
    status: int,
    body: bytes,
    *,
    headers: Headers | None = None,
    content_type: bytes = b"application/json",
) -> None:
    """Send a whole response."""
    start: Headers = [
        (b"content-type", content_type),
        (b"content-length", str(len(body)).encode()),
    ]
    if headers:
        start.extend(headers)
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


async def send_invalid(send: Send, problem: Invalid, *, retry_after_s: int) -> None:
    """Answer with what the client got wrong."""
    status = status_of(problem)
    body = error_body(status, problem.sentence, code=problem.code, parameter=problem.parameter)
    await send_body(
        send,
        status,
        body,
        headers=headers_of(status, code=problem.code, retry_after_s=retry_after_s),
    )


async def send_ended(send: Send, outcome: Ended, *, retry_after_s: int) -> None:
    """Answer with what the house could not do."""
    body = error_body(outcome.status, outcome.sentence, code=outcome.code, parameter=None)
    headers = headers_of(outcome.status, code=outcome.code, retry_after_s=retry_after_s)
    await send_body(send, outcome.status, body, headers=headers)
