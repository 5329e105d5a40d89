"""The two shapes of an answer, whole: a chat completion and a text completion."""

import hashlib
import time
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

import tercet
from tercet.api.ask import Ask
from tercet.api.choice import Choice, Delta
from tercet.api.logprobs import Entry, chat_content, completion_logprobs, prompt_table
from tercet.jobs.job import Finish

encode = msgspec.json.encode
_ENTRY_CHARS = 20


@dataclass(frozen=True, slots=True)
class Header:
    """What all chunks of an answer, or its one whole, begin with."""

    id: str
    kind: str
    created: int
    model: str
    system_fingerprint: str

    def members(self) -> dict[str, object]:
        return {
            "id": self.id,
            "object": self.kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.system_fingerprint,
        }


@lru_cache(maxsize=64)
def fingerprint(model: str) -> str:
    """Name what computes: the same name, the same seeds, the same answers."""
    digest = hashlib.blake2b(f"{tercet.__version__} {model}".encode(), digest_size=5)
    return f"fp_{digest.hexdigest()}"


def header(ask: Ask, *, nonce: str) -> Header:
    """Begin an answer; ids are unique over restarts by the process's nonce."""
    kind = ("chatcmpl", "chat.completion") if ask.chat else ("cmpl", "text_completion")
    suffix = ".chunk" if ask.chat and ask.delivery.stream else ""
    return Header(
        id=f"{kind[0]}-{nonce}{ask.job.id:016x}",
        kind=kind[1] + suffix,
        created=int(time.time()),
        model=ask.name,
        system_fingerprint=fingerprint(ask.job.model),
    )


def usage(ask: Ask, choices: list[Choice]) -> dict[str, object]:
    """Count what was read (each prompt once, whatever `n`) and what was delivered."""
    prompt_tokens = ask.prompt_tokens
    completion_tokens = 0
    cached_tokens = 0
    for choice in choices:
        completion_tokens += choice.num_tokens
        if choice.index % ask.job.n == 0:
            cached_tokens += choice.cached_tokens
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


@dataclass(slots=True)
class Collected:
    """The whole of one choice."""

    texts: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    finish: Finish | None = None
    stop_reason: int | str | None = None

    @property
    def size(self) -> int:
        """What it costs to encode, about, in characters of text that cost as much."""
        return len(self.tokens) + _ENTRY_CHARS * len(self.entries)

    def add(self, delta: Delta) -> None:
        self.texts.append(delta.text)
        self.tokens.extend(delta.tokens)
        self.entries.extend(delta.entries)
        self.finish = delta.finish
        self.stop_reason = delta.stop_reason


def whole(ask: Ask, head: Header, choices: list[Choice], collected: list[Collected]) -> bytes:
    """Make the body of an answer that is not streamed."""
    body = head.members()
    body["choices"] = [
        _chat_choice(ask, choice, parts) if ask.chat else _text_choice(ask, choice, parts)
        for choice, parts in zip(choices, collected, strict=True)
    ]
    body["usage"] = usage(ask, choices)
    if ask.chat and ask.delivery.prompt_logprobs is not None:
        body["prompt_logprobs"] = prompt_table(ask.model.codec, choices[0].prompt_logprobs)
    if ask.chat and ask.delivery.return_token_ids:
        body["prompt_token_ids"] = ask.job.prompts[0]
    return encode(body)


def logprobs_member(ask: Ask, entries: list[Entry]) -> dict[str, object] | None:
    """Make the `logprobs` of a choice or of a chunk; None where none were asked for."""
    num_top = ask.delivery.logprobs
    if num_top is None:
        return None
    codec = ask.model.codec
    if ask.chat:
        return {"content": chat_content(codec, entries, num_top=num_top), "refusal": None}
    return completion_logprobs(codec, entries, num_top=num_top)


def _chat_choice(ask: Ask, choice: Choice, parts: Collected) -> dict[str, object]:
    text = "".join(parts.texts)
    made: dict[str, object] = {
        "index": choice.index,
        "message": {"role": "assistant", "content": text, "refusal": None},
        "logprobs": logprobs_member(ask, parts.entries),
        "finish_reason": parts.finish,
        "stop_reason": parts.stop_reason,
    }
    if ask.delivery.return_token_ids:
        made["token_ids"] = parts.tokens
    return made


def _text_choice(ask: Ask, choice: Choice, parts: Collected) -> dict[str, object]:
    made: dict[str, object] = {
        "index": choice.index,
        "text": "".join(parts.texts),
        "logprobs": logprobs_member(ask, parts.entries),
        "finish_reason": parts.finish,
        "stop_reason": parts.stop_reason,
    }
    if ask.delivery.prompt_logprobs is not None:
        made["prompt_logprobs"] = prompt_table(ask.model.codec, choice.prompt_logprobs)
    if ask.delivery.return_token_ids:
        made["token_ids"] = parts.tokens
        made["prompt_token_ids"] = ask.job.prompts[choice.index // ask.job.n]
    return made
