"""Log-probabilities in the two forms of OpenAI's endpoints and in vLLM's form for prompts."""

from dataclasses import dataclass

from tercet.jobs.job import TokenLogprobs
from tercet.text.codec import Codec

_LOWEST = -9999.0
"""What JSON shows for a probability of zero: it has no infinity."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One token as it is shown: its text starts at `offset` characters of the choice's text."""

    token: int
    offset: int
    logprobs: TokenLogprobs | None
    """None for a prompt's first token, which nothing predicts."""


def chat_content(codec: Codec, entries: list[Entry], *, num_top: int) -> list[dict[str, object]]:
    """Make `choices[].logprobs.content` of a chat."""
    content: list[dict[str, object]] = []
    for entry in entries:
        known = entry.logprobs
        shown = _chat_token(codec, entry.token, known.logprob if known else 0.0)
        top = known.top[:num_top] if known else ()
        shown["top_logprobs"] = [_chat_token(codec, token, value) for token, value in top]
        content.append(shown)
    return content


def _chat_token(codec: Codec, token: int, logprob: float) -> dict[str, object]:
    return {
        "token": codec.token_text(token),
        "logprob": finite(logprob),
        "bytes": list(codec.token_bytes(token)),
    }


def completion_logprobs(codec: Codec, entries: list[Entry], *, num_top: int) -> dict[str, object]:
    """Make `choices[].logprobs` of a completion: four lists of one length."""
    top: list[dict[str, float] | None] = []
    for entry in entries:
        if entry.logprobs is None:
            top.append(None)
            continue
        best = {name_of(codec, token): finite(v) for token, v in entry.logprobs.top[:num_top]}
        best.setdefault(name_of(codec, entry.token), finite(entry.logprobs.logprob))
        top.append(best)
    return {
        "tokens": [name_of(codec, entry.token) for entry in entries],
        "token_logprobs": [
            None if entry.logprobs is None else finite(entry.logprobs.logprob) for entry in entries
        ],
        "top_logprobs": top,
        "text_offset": [entry.offset for entry in entries],
    }


def prompt_table(
    codec: Codec, entries: list[TokenLogprobs | None]
) -> list[dict[str, object] | None]:
    """Make vLLM's `prompt_logprobs`: for each token, by id, what was likely in its place."""
    table: list[dict[str, object] | None] = []
    for entry in entries:
        if entry is None:
            table.append(None)
            continue
        row = {
            str(token): _ranked(codec, token, value, rank=rank)
            for rank, (token, value) in enumerate(entry.top, start=1)
        }
        row[str(entry.token)] = _ranked(codec, entry.token, entry.logprob, rank=entry.rank)
        table.append(row)
    return table


def _ranked(codec: Codec, token: int, logprob: float, *, rank: int) -> object:
    return {"logprob": finite(logprob), "rank": rank, "decoded_token": codec.token_text(token)}


def name_of(codec: Codec, token: int) -> str:
    """Spell a token so that no two of half a character look alike, as OpenAI does."""
    data = codec.token_bytes(token)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def finite(logprob: float) -> float:
    return max(_LOWEST, logprob)
