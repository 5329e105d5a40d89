"""The Python API: `LLM` starts the process tree of `tercet serve` privately and talks to it.

    with LLM("smollm2") as llm:
        for output in llm.generate(["Once upon a time"], SamplingParams(max_tokens=32)):
            print(output.text)

The tree is watched by a pipe: it ends with `close`, with the `with` block, or with this process,
however that ends. Everything goes through the same HTTP front, so what it refuses is the same.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import msgspec
from msgspec import Struct
from tqdm import tqdm

from tercet.base.errors import Invalid
from tercet.cli.compose import cache_folder
from tercet.cli.prepare import prepare
from tercet.cli.settings import Source, resolve
from tercet.runtime.config import TreeConfig
from tercet.runtime.tree import Tree, start_tree

REQUESTS_AT_ONCE = 256
Message = Mapping[str, Any]
Prompt = str | Sequence[int]
T = TypeVar("T")


class Failed(Exception):  # noqa: N818  the name says what happened
    """The server could not answer, for a reason outside the caller's power."""


class SamplingParams(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How tokens are chosen; the names and meanings of the HTTP API (docs/api.md)."""

    n: int = 1
    max_tokens: int | None = None
    """Absent: 16 for `generate`, the rest of the context for `chat`."""
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    logprobs: int | None = None
    """How many alternatives to report with each token."""
    prompt_logprobs: int | None = None

    def fields(self, *, chat: bool) -> dict[str, object]:
        """The fields of a request body."""
        body: dict[str, object] = msgspec.to_builtins(self)
        if chat and self.logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": self.logprobs}
        return body


class CompletionOutput(Struct, frozen=True, kw_only=True):
    """One choice."""

    index: int
    text: str
    token_ids: list[int]
    finish_reason: str | None
    stop_reason: int | str | None = None
    logprobs: Any = None
    """As the HTTP API shapes them."""


class RequestOutput(Struct, frozen=True, kw_only=True):
    """What became of one prompt: `n` choices, best seen through `text` where `n` is 1."""

    prompt: Any
    """The prompt or the messages, as they were given."""
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    cached_tokens: int = 0
    prompt_logprobs: Any = None

    @property
    def text(self) -> str:
        return self.outputs[0].text


class LLM:
    """A model that answers, in processes of its own.

    `settings` are the keys of `tercet config show`: `LLM("smollm2", settings={"runtime.replicas":
    2})`. Raises `Invalid` with a sentence where the model or a setting cannot be served.
    """

    def __init__(
        self,
        model: str = "smollm2",
        *,
        settings: Mapping[str, object] | None = None,
        show_progress: bool = True,
    ) -> None:
        key = secrets.token_hex(16)
        sources = [
            Source("default", {"cache_folder": str(cache_folder()), "observe.log_level": "error"}),
            Source("settings", settings or {}),
            Source("LLM", {"model": model, "runtime.port": 0, "api.api_keys": [key]}),
        ]
        config = resolve(TreeConfig, sources).value
        prepared = prepare(config)
        self._show_progress = show_progress
        self._headers = {"authorization": f"Bearer {key}"}
        self.model = (config.served_names or (prepared.name,))[0]
        self._tree: Tree | None = start_tree(
            replace(config, model=prepared.location, served_names=(self.model,))
        )

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling: SamplingParams | None = None,
    ) -> list[RequestOutput]:
        """Complete a prompt or each of a list (texts or token ids); outputs in the same order."""
        bodies = [{"prompt": _plain(prompt)} for prompt in _prompts(prompts)]
        return self._wait(self._answer_all("/v1/completions", bodies, sampling))

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling: SamplingParams | None = None,
    ) -> list[RequestOutput]:
        """Answer a conversation or each of a list of conversations."""
        many = [messages] if messages and isinstance(messages[0], Mapping) else messages
        bodies = [{"messages": [dict(m) for m in one]} for one in many]  # type: ignore[arg-type]
        return self._wait(self._answer_all("/v1/chat/completions", bodies, sampling))

    async def stream(
        self,
        prompt: Prompt | Sequence[Message],
        sampling: SamplingParams | None = None,
    ) -> AsyncIterator[str]:
        """Yield pieces of text as they come, of one prompt or one conversation."""
        chat = not isinstance(prompt, str) and bool(prompt) and isinstance(prompt[0], Mapping)
        path = "/v1/chat/completions" if chat else "/v1/completions"
        content = {"messages": prompt} if chat else {"prompt": _plain(prompt)}  # type: ignore[arg-type]
        body = {**content, **self._fields(sampling, chat=chat), "stream": True}
        async with self._client() as client, client.stream("POST", path, json=body) as answer:
            if answer.status_code != httpx.codes.OK:
                raise _refusal(answer.status_code, await answer.aread())
            async for line in answer.aiter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    raise Failed(chunk["error"]["message"])
                for choice in chunk["choices"]:
                    piece = choice["delta"].get("content") if chat else choice["text"]
                    if piece:
                        yield piece

    def close(self) -> None:
        """End every process of it; nothing is left when this returns."""
        if self._tree is not None:
            tree, self._tree = self._tree, None
            tree.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _client(self) -> httpx.AsyncClient:
        if self._tree is None:
            raise Invalid("this LLM is closed")
        limits = httpx.Limits(max_connections=REQUESTS_AT_ONCE)
        return httpx.AsyncClient(
            base_url=self._tree.url,
            headers=self._headers,
            limits=limits,
            timeout=None,  # noqa: S113  a long answer is no failure; the tree watches itself
            trust_env=False,
        )

    def _fields(self, sampling: SamplingParams | None, *, chat: bool) -> dict[str, object]:
        fields = (sampling or SamplingParams()).fields(chat=chat)
        return {"model": self.model, **fields}

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        # A thread of its own: the caller may stand in an event loop (a notebook does).
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, work).result()

    async def _answer_all(
        self,
        path: str,
        bodies: list[dict[str, Any]],
        sampling: SamplingParams | None,
    ) -> list[RequestOutput]:
        chat = path.startswith("/v1/chat")
        fields = {**self._fields(sampling, chat=chat), "return_token_ids": True}
        places = asyncio.Semaphore(REQUESTS_AT_ONCE)
        show = self._show_progress and len(bodies) > 1
        with tqdm(total=len(bodies), unit="prompt", disable=not show) as bar:
            async with self._client() as client:

                async def one(body: dict[str, Any]) -> RequestOutput:
                    async with places:
                        answer = await client.post(path, json={**body, **fields})
                    if answer.status_code != httpx.codes.OK:
                        raise _refusal(answer.status_code, answer.content)
                    bar.update()
                    return _output(body, answer.json(), chat=chat)

                tasks = [asyncio.ensure_future(one(body)) for body in bodies]
                try:
                    return list(await asyncio.gather(*tasks))
                finally:
                    for task in tasks:
                        task.cancel()


def _prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str):
        return [prompts]
    if prompts and isinstance(prompts[0], int):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]


def _plain(prompt: Prompt) -> str | list[int]:
    return prompt if isinstance(prompt, str) else list(prompt)


def _output(body: dict[str, Any], answer: dict[str, Any], *, chat: bool) -> RequestOutput:
    choices = answer["choices"]
    holder = answer if chat else choices[0]
    return RequestOutput(
        prompt=body["messages"] if chat else body["prompt"],
        prompt_token_ids=list(holder["prompt_token_ids"]),
        outputs=[
            CompletionOutput(
                index=choice["index"],
                text=choice["message"]["content"] if chat else choice["text"],
                token_ids=list(choice["token_ids"]),
                finish_reason=choice["finish_reason"],
                stop_reason=choice["stop_reason"],
                logprobs=choice["logprobs"],
            )
            for choice in choices
        ],
        cached_tokens=answer["usage"]["prompt_tokens_details"]["cached_tokens"],
        prompt_logprobs=holder.get("prompt_logprobs"),
    )


def _refusal(status: int, content: bytes) -> Exception:
    """The error of an answer that is not 200, as this API raises it."""
    try:
        error = json.loads(content)["error"]
        sentence, code, parameter = error["message"], error["code"], error["param"]
    except (ValueError, KeyError, TypeError):
        return Failed(f"HTTP {status}: {content[:200]!r}")
    if status < httpx.codes.INTERNAL_SERVER_ERROR:
        return Invalid(sentence, code=code or "invalid_value", parameter=parameter)
    return Failed(sentence)
