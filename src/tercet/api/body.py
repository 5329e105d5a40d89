"""From the bytes of a request to a JSON object, or a sentence about what is wrong with them."""

import asyncio
import re

import msgspec
from starlette.types import Receive, Scope

from tercet.api.config import ApiConfig
from tercet.api.values import kind_of, show
from tercet.base.errors import Invalid

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_OPENING = b"[{"
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_decode = msgspec.json.Decoder().decode


class Disconnected(Exception):  # noqa: N818
    """The client went away before its request was complete: nobody is left to answer."""


async def read_object(scope: Scope, receive: Receive, config: ApiConfig) -> dict[str, object]:
    """Read a JSON object; raise `Invalid` for anything else."""
    _check_headers(scope, config)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Disconnected
    body: bytes = message.get("body", b"")
    if message.get("more_body", False):
        try:
            async with asyncio.timeout(config.body_timeout_s):
                body = await _read_rest(body, receive, config)
        except TimeoutError:
            raise Invalid(
                f"The body was not complete after {config.body_timeout_s:g} s.", code="body_timeout"
            ) from None
    if len(body) > config.body_bytes_max:
        raise _too_large(config)
    return parse_object(body, depth_max=config.json_depth_max, parts_max=config.json_parts_max)


async def _read_rest(body: bytes, receive: Receive, config: ApiConfig) -> bytes:
    chunks = [body]
    size = len(body)
    while True:
        if size > config.body_bytes_max:
            raise _too_large(config)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        chunk: bytes = message.get("body", b"")
        chunks.append(chunk)
        size += len(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def _too_large(config: ApiConfig) -> Invalid:
    return Invalid(
        f"The body is too large: at most {config.body_bytes_max} bytes are accepted.",
        code="body_too_large",
    )


def _check_headers(scope: Scope, config: ApiConfig) -> None:
    content_type = b""
    for name, value in scope["headers"]:
        if name == b"content-type":
            content_type = value
        elif name == b"content-length" and value.isdigit() and _over(value, config):
            raise _too_large(config)
        elif name == b"content-encoding" and value.lower() != b"identity":
            raise Invalid(
                "The body is compressed, but only plain bodies are accepted.",
                code="unsupported_media_type",
            )
    kind = content_type.partition(b";")[0].strip().lower()
    if kind != b"application/json" and not kind.endswith(b"+json"):
        shown = show(kind.decode("latin-1")) if kind else "missing"
        raise Invalid(
            f"The content type is {shown}, but application/json was expected.",
            code="unsupported_media_type",
        )


def _over(value: bytes, config: ApiConfig) -> bool:
    return len(value) > 18 or int(value) > config.body_bytes_max


def parse_object(body: bytes, *, depth_max: int, parts_max: int) -> dict[str, object]:
    """Decode a JSON object strictly: no NaN, no half characters, bounded depth, and at most
    `parts_max` lists and objects in it: millions of them, empty ones too, take seconds.
    """
    # Counting brackets is a bound from above that costs nothing; only then look where they are.
    if body.count(b"[") + body.count(b"{") > min(depth_max, parts_max):
        _check_brackets(_brackets(body), depth_max=depth_max, parts_max=parts_max)
    try:
        value: object = _decode(body)
    except msgspec.MsgspecError as error:
        raise Invalid(_why_malformed(body, str(error)), code="invalid_json") from None
    except RecursionError:  # a configured depth that the decoder does not reach
        raise _too_deep(depth_max) from None
    if not isinstance(value, dict):
        raise Invalid(
            f"The body is {kind_of(value)}, but a JSON object was expected.", code="invalid_json"
        )
    return value


def _brackets(body: bytes) -> bytes:
    """Give the brackets of a JSON text, those in strings apart, at the speed of C."""
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(plain.split(b'"')[::2]).translate(None, _NO_BRACKETS)


def _check_brackets(brackets: bytes, *, depth_max: int, parts_max: int) -> None:
    depth = 0
    for bracket in brackets[: 2 * parts_max]:
        depth += 1 if bracket in _OPENING else -1
        if depth > depth_max:
            raise _too_deep(depth_max)
    if brackets.count(b"[") + brackets.count(b"{") > parts_max:
        raise Invalid(
            f"The body has too many parts: at most {parts_max} lists and objects are accepted.",
            code="invalid_json",
        )


def _too_deep(depth_max: int) -> Invalid:
    return Invalid(
        f"The body is nested too deeply: at most {depth_max} levels are accepted.",
        code="invalid_json",
    )


def _why_malformed(body: bytes, why: str) -> str:
    if not body:
        return "The body is empty, but a JSON object was expected."
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return f"The body is not valid UTF-8 at byte {error.start}."
    if "range" in why:
        return "The body holds a number that is too large for any parameter."
    if "surrogate" in why or ("truncated" in why and _SURROGATE.search(body)):
        return "The body holds half of a surrogate pair, which is not a character."
    why = why.removeprefix("JSON is malformed: ")
    return f"The body is not valid JSON: {why}."
