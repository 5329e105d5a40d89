"""From a request's fields to `SamplingParameters` and to how its text shall be delivered."""

import re
from dataclasses import dataclass

from tercet.api.config import ApiConfig
from tercet.api.fields import Fields, integer_in, number_in, token_ids, wrong
from tercet.api.service import ServedModel
from tercet.base.errors import Invalid
from tercet.jobs.sampling import SamplingParameters

_INT_MAX = 2**31 - 1
_SHRINKING = 4
"""A text may become shorter before it is cut into tokens: Unicode joins up to four characters."""
_SEED_BITS = (1 << 63) - 1
_TOKEN_KEY = re.compile("0|[1-9][0-9]{0,10}")
_TOP_P_MIN = 1e-6
"""`top_p: 0` asks for the best token alone: so does any mass below the best token's."""


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """What becomes of the tokens on their way to the client."""

    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    stops: tuple[str, ...] = ()
    include_stop: bool = False
    """Leave the stop string, or the stop token's text, in the text."""
    skip_special: bool = True
    return_token_ids: bool = False
    min_tokens: int = 0
    """Stop strings are not looked for in the text of the first so many tokens."""
    logprobs: int | None = None
    """How many alternatives to show; None: no log-probabilities at all."""
    prompt_logprobs: int | None = None


def read_delivery(fields: Fields, config: ApiConfig, *, logprobs: int | None) -> Delivery:
    """Read everything that concerns text and its stream."""
    stream = fields.boolean("stream")
    usage, continuous = _stream_options(fields, stream=stream)
    prompt_logprobs = fields.integer("prompt_logprobs", low=0, high=config.top_logprobs_max)
    if stream and prompt_logprobs is not None:
        raise Invalid("prompt_logprobs can't be streamed.", parameter="prompt_logprobs")
    return Delivery(
        stream=stream,
        include_usage=usage,
        continuous_usage=continuous,
        stops=_stops(fields, config),
        include_stop=fields.boolean("include_stop_str_in_output"),
        skip_special=fields.boolean("skip_special_tokens", default=True),
        return_token_ids=fields.boolean("return_token_ids"),
        min_tokens=fields.integer("min_tokens", low=0, high=_INT_MAX) or 0,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
    )


def _stream_options(fields: Fields, *, stream: bool) -> tuple[bool, bool]:
    options = fields.object_of("stream_options")
    if options is None:
        return False, False
    if not stream:
        raise Invalid("stream_options is only for stream: true.", parameter="stream_options")
    known = {"include_usage": False, "continuous_usage_stats": False, "include_obfuscation": False}
    for name, value in options.items():
        if name not in known:
            expected = ", ".join(known)
            wrong("stream_options", name, f"one of {expected}")
        if value is not None:
            if not isinstance(value, bool):
                wrong(f"stream_options[{name}]", value, "true or false")
            known[name] = value
    continuous = known["include_usage"] and known["continuous_usage_stats"]
    return known["include_usage"], continuous


def _stops(fields: Fields, config: ApiConfig) -> tuple[str, ...]:
    value = fields.raw("stop")
    if value is None:
        return ()
    entries = value if isinstance(value, list) else [value]
    if len(entries) > config.stop_strings_max:
        wrong("stop", value, f"at most {config.stop_strings_max} strings")
    stops = [entry for entry in entries if isinstance(entry, str)]
    if len(stops) != len(entries):
        wrong("stop", value, "a string or a list of strings")
    for stop in stops:
        if not 0 < len(stop) <= config.stop_string_chars_max:
            wrong("stop", stop, f"a string of 1 to {config.stop_string_chars_max} characters")
    return tuple(dict.fromkeys(stops))


def read_choices(fields: Fields, config: ApiConfig) -> int:
    """Read `n`; `best_of` may only repeat it."""
    n = fields.integer("n", low=1, high=config.choices_max) or 1
    best_of = fields.integer("best_of", low=1, high=config.choices_max)
    if best_of is not None and best_of < n:
        wrong("best_of", best_of, f"an integer of at least n, which is {n}")
    if best_of is not None and best_of > n:
        raise Invalid(
            f"best_of is not served yet: {best_of} can't be more than n, which is {n}.",
            code="unsupported_parameter",
            parameter="best_of",
        )
    return n


def fit_context(
    model: ServedModel,
    *,
    prompt_max: int,
    prompt_field: str,
    asked: int | None,
    default: int | None,
) -> int:
    """Decide `max_tokens`, at least 1, or raise `context_length_exceeded` with the numbers.

    `default` is what is written where the client is silent, cut to the room; None: all the room.
    """
    room = model.context_max - prompt_max
    if asked is None:
        asked = max(room if default is None else min(default, room), 1)
    if asked > room:
        raise Invalid(
            f"This model's maximum context length is {model.context_max} tokens. However, you"
            f" requested {prompt_max + asked} tokens ({prompt_max} in the prompt, {asked} for the"
            " completion). Shorten the prompt or the completion.",
            code="context_length_exceeded",
            parameter="max_tokens" if room > 0 else prompt_field,
        )
    return asked


def refuse_hopeless(model: ServedModel, text: str, *, prompt_field: str) -> None:
    """Refuse a text that can't fit whatever its tokens are, before minutes are spent on it."""
    least = len(text) // (_SHRINKING * model.codec.token_bytes_max)
    if least >= model.context_max:
        fit_context(model, prompt_max=least, prompt_field=prompt_field, asked=None, default=1)


def check_prompt_logprobs(
    num_top: int | None, *, prompt_tokens: int, n: int, config: ApiConfig
) -> None:
    """Refuse an answer that would mostly be log-probabilities of its own prompt."""
    if num_top is None:
        return
    asked = prompt_tokens * n * (1 + num_top)
    if asked > config.prompt_logprobs_max:
        raise Invalid(
            f"{asked} log-probabilities of prompt tokens were asked for ({prompt_tokens} tokens,"
            f" n = {n}, {num_top} alternatives), but at most {config.prompt_logprobs_max} are given"
            " at once.",
            parameter="logprobs",
        )


def read_sampling(
    fields: Fields, model: ServedModel, config: ApiConfig, *, delivery: Delivery, max_tokens: int
) -> SamplingParameters:
    """Read what the sampler needs; every id is within the vocabulary, every number finite."""
    number, defaults = fields.number, model.defaults
    top_k = fields.integer("top_k", low=-1, high=_INT_MAX)
    top_k = defaults.top_k if top_k is None else top_k
    seed = fields.integer("seed", low=-(2**63), high=2**63 - 1)
    min_tokens = fields.integer("min_tokens", low=0, high=max_tokens) or 0
    ignore_eos = fields.boolean("ignore_eos")
    # The model's file may name one end token where its tokenizer knows several.
    ends = () if ignore_eos else model.end_ids
    stops = _stop_token_ids(fields, config, vocab=model.vocab)
    return SamplingParameters(
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        temperature=number("temperature", low=0.0, high=2.0, default=defaults.temperature),
        top_k=min(max(top_k, 0), model.vocab),
        top_p=max(number("top_p", low=0.0, high=1.0, default=defaults.top_p), _TOP_P_MIN),
        min_p=number("min_p", low=0.0, high=1.0, default=defaults.min_p),
        repetition_penalty=number(
            "repetition_penalty", low=0.01, high=100.0, default=defaults.repetition_penalty
        ),
        presence_penalty=number("presence_penalty", low=-2.0, high=2.0, default=0.0),
        frequency_penalty=number("frequency_penalty", low=-2.0, high=2.0, default=0.0),
        logit_bias=_logit_bias(fields, config, vocab=model.vocab),
        seed=None if seed is None else seed & _SEED_BITS,
        stop_token_ids=tuple(dict.fromkeys((*stops, *ends))),
        ignore_eos=ignore_eos,
        logprobs=delivery.logprobs,
        prompt_logprobs=delivery.prompt_logprobs,
    )


def _logit_bias(fields: Fields, config: ApiConfig, *, vocab: int) -> tuple[tuple[int, float], ...]:
    entries = fields.object_of("logit_bias")
    if not entries:
        return ()
    if len(entries) > config.logit_bias_max:
        wrong("logit_bias", entries, f"at most {config.logit_bias_max} entries")
    biases: dict[int, float] = {}
    for key, value in entries.items():
        if not _TOKEN_KEY.fullmatch(key):  # one spelling only: no two keys mean one token
            wrong("logit_bias", key, "a token id in plain digits as every key")
        token = integer_in(f"logit_bias[{key}]", int(key), low=0, high=vocab - 1)
        biases[token] = number_in(f"logit_bias[{key}]", value, low=-100.0, high=100.0)
    return tuple(sorted(biases.items()))


def _stop_token_ids(fields: Fields, config: ApiConfig, *, vocab: int) -> tuple[int, ...]:
    value = fields.raw("stop_token_ids")
    if value is None:
        return ()
    if not isinstance(value, list):
        wrong("stop_token_ids", value, "a list of token ids")
    if len(value) > config.stop_token_ids_max:
        wrong("stop_token_ids", value, f"at most {config.stop_token_ids_max} token ids")
    return tuple(dict.fromkeys(token_ids("stop_token_ids", value, vocab=vocab)))
