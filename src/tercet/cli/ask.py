"""One question to a running server, for commands: an answer, or the sentence why there is none."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tercet.base.errors import Invalid

if TYPE_CHECKING:
    import httpx

Command = TypeVar("Command", bound=Callable[..., Any])
URL = "http://127.0.0.1:8000"
TIMEOUT_S = 10.0


def server_options(command: Command) -> Command:
    """Give a command the options that say which server is meant."""
    command = click.option("--api-key", envvar="TERCET_API_KEY", help="A key of the server.")(
        command
    )
    return click.option("--url", default=URL, show_default=True, help="Where it serves.")(command)


def ask(
    url: str, path: str, *, key: str | None = None, put: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """Give the JSON object that a server answers; `Invalid` with its sentence otherwise."""
    import httpx  # only for who asks

    headers = {"authorization": f"Bearer {key.split()[0]}"} if key and key.split() else {}
    try:
        answer = httpx.request(
            "GET" if put is None else "PUT",
            url.rstrip("/") + path,
            json=put,
            headers=headers,
            timeout=TIMEOUT_S,
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Invalid(f"No server answers on {url}: {error}.", parameter="url") from error
    return _read(answer, url)


def _read(answer: "httpx.Response", url: str) -> dict[str, Any]:
    try:
        body = answer.json()
    except ValueError as error:
        raise Invalid(f"{url} is no Tercet server: it answers without JSON.") from error
    if answer.is_success and isinstance(body, dict):
        return body
    said = body.get("error") if isinstance(body, dict) else None
    sentence = said.get("message") if isinstance(said, dict) else None
    raise Invalid(sentence or f"{url} answers with status {answer.status_code}.", parameter="url")
