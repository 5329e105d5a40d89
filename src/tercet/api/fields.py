"""The fields of every endpoint in three lists, and strict readers of their values.

*Served* fields do what they say. *Idle* ones are accepted and change nothing (`user`, `metadata`).
*Refused* ones are known but not served yet: a value that asks for nothing (`tools: []`) passes,
any other is refused by name. Whatever is in no list is refused with the nearest known name.
"""

import math
from dataclasses import dataclass
from typing import NoReturn

from tercet.api.values import kind_of, show
from tercet.base.errors import Invalid, must


@dataclass(frozen=True)
class Table:
    """The fields that one endpoint knows. A null is the same as no field, everywhere."""

    served: frozenset[str]
    idle: dict[str, type]
    """Name and the JSON type that is still asked for."""
    refused: dict[str, tuple[object, ...]]
    """Name and the values that ask for nothing."""


_MODEL = frozenset({"model"})
_SAMPLED = frozenset(
    {
        *("max_tokens", "min_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "n"),
        *("repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias"),
        *("stop", "stop_token_ids", "ignore_eos", "include_stop_str_in_output"),
        *("skip_special_tokens", "logprobs", "prompt_logprobs", "return_token_ids"),
        *("stream", "stream_options", "add_special_tokens", "best_of"),
    }
)
_TEMPLATED = frozenset(
    {"messages", "add_generation_prompt", "continue_final_message", "chat_template_kwargs"}
)
_IDLE: dict[str, type] = {"user": str}
_IDLE_CHAT: dict[str, type] = {
    "metadata": dict,
    "service_tier": str,
    "safety_identifier": str,
    "prompt_cache_key": str,
    "prompt_cache_retention": str,
    "parallel_tool_calls": bool,
}
_REFUSED: dict[str, tuple[object, ...]] = {
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_decoding_backend": (),
    "guided_whitespace_pattern": (),
    "logits_processors": ([],),
    "bad_words": ([],),
    "allowed_token_ids": ([],),
    "use_beam_search": (False,),
    "length_penalty": (1, 1.0),
    "early_stopping": (False,),
    "spaces_between_special_tokens": (True,),
    "truncate_prompt_tokens": (),
    "return_tokens_as_token_ids": (False,),
    "priority": (0,),
    "cache_salt": (),
    "kv_transfer_params": (),
    "vllm_xargs": (),
    "request_id": (),
    "lora_path": (),
    "store": (False,),
}
_REFUSED_CHAT: dict[str, tuple[object, ...]] = {
    "tools": ([],),
    "tool_choice": ("none",),
    "functions": ([],),
    "function_call": ("none",),
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
    "reasoning_effort": ("none",),
    "reasoning": (),
    "include_reasoning": (False,),
    "verbosity": ("medium",),
    "web_search_options": (),
    "moderation": (),
    "echo": (False,),
    "chat_template": (),
    "documents": ([],),
    "mm_processor_kwargs": ({},),
}

COMPLETIONS = Table(
    served=_MODEL | _SAMPLED | {"prompt", "echo"},
    idle=_IDLE | _IDLE_CHAT,
    refused=_REFUSED | {"suffix": ("",), "prompt_embeds": ()},
)
CHAT = Table(
    served=_MODEL | _SAMPLED | _TEMPLATED | {"max_completion_tokens", "top_logprobs"},
    idle=_IDLE | _IDLE_CHAT,
    refused=_REFUSED | _REFUSED_CHAT,
)
TOKENIZE = Table(
    served=_MODEL | _TEMPLATED | {"prompt", "add_special_tokens", "return_token_strs"},
    idle={},
    refused={"tools": ([],), "chat_template": (), "mm_processor_kwargs": ({},)},
)
DETOKENIZE = Table(served=_MODEL | {"tokens"}, idle={}, refused={})


class Fields:
    """A request's fields, known to be in the endpoint's table; readers raise `Invalid`."""

    def __init__(self, values: dict[str, object], table: Table) -> None:
        self._values = values
        for name, value in values.items():
            if name not in table.served:
                _check_not_served(name, value, table)

    def raw(self, name: str) -> object:
        """Give the value as it came; None where it is absent or null."""
        return self._values.get(name)

    def given(self, name: str) -> bool:
        return self._values.get(name) is not None

    def boolean(self, name: str, *, default: bool = False) -> bool:
        value = self._values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            wrong(name, value, "true or false")
        return value

    def integer(self, name: str, *, low: int, high: int) -> int | None:
        """Read an integer of [low, high]; 3.0, "3" and true are not integers."""
        value = self._values.get(name)
        return None if value is None else integer_in(name, value, low=low, high=high)

    def number(self, name: str, *, low: float, high: float, default: float) -> float:
        """Read a finite number of [low, high]."""
        value = self._values.get(name)
        return default if value is None else number_in(name, value, low=low, high=high)

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is not None and not isinstance(value, str):
            wrong(name, value, "a string")
        return value

    def object_of(self, name: str) -> dict[str, object] | None:
        value = self._values.get(name)
        if value is not None and not isinstance(value, dict):
            wrong(name, value, "an object")
        return value


def wrong(name: str, value: object, expected: str) -> NoReturn:
    """Refuse a value: what it is and what was expected."""
    sentence = f"{name} is {show(value)}, but {expected} was expected."
    raise Invalid(sentence, parameter=name.partition("[")[0])


def integer_in(name: str, value: object, *, low: int, high: int) -> int:
    """Check an integer of [low, high]."""
    if type(value) is not int:
        wrong(name, value, f"an integer from {low} to {high}")
    if not low <= value <= high:
        wrong(name, value, f"an integer from {low} to {high}")
    return value


def number_in(name: str, value: object, *, low: float, high: float) -> float:
    """Check a finite number of [low, high]."""
    if type(value) is not int and type(value) is not float:
        wrong(name, value, f"a number from {low:g} to {high:g}")
    if not low <= value <= high or not math.isfinite(value):
        wrong(name, value, f"a number from {low:g} to {high:g}")
    return float(value)


def token_ids(name: str, value: list[object], *, vocab: int) -> tuple[int, ...]:
    """Check that every entry is a token id of the vocabulary."""
    ids = [token for token in value if type(token) is int]
    if len(ids) == len(value) and (not ids or (min(ids) >= 0 and max(ids) < vocab)):
        return tuple(ids)
    for index, token in enumerate(value):
        if type(token) is not int or not 0 <= token < vocab:
            wrong(f"{name}[{index}]", token, f"a token id from 0 to {vocab - 1}")
    must(False, "token ids were refused, yet each of them is good")
    return ()


def _check_not_served(name: str, value: object, table: Table) -> None:
    idle = table.idle.get(name)
    if idle is not None:
        if value is not None and not isinstance(value, idle):
            wrong(name, value, kind_of(idle()))
        return
    neutral = table.refused.get(name)
    if neutral is None:
        raise Invalid(
            f"Unrecognized request argument: {show(name)}.{_nearest(name, table)}",
            code="unknown_parameter",
            parameter=name[:64],
        )
    if value is None or any(type(value) is type(same) and value == same for same in neutral):
        return
    raise Invalid(
        f"{name} is not served yet: {show(value)} can't be honoured. Leave the field out.",
        code="unsupported_parameter",
        parameter=name,
    )


def _nearest(name: str, table: Table) -> str:
    known = sorted(table.served | table.idle.keys() | table.refused.keys())
    import difflib  # only for a mistake

    near = difflib.get_close_matches(name[:64], known, n=1, cutoff=0.5)
    return f" Did you mean {near[0]}?" if near else ""
