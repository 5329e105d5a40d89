"""`/v1/completions`: from fields to a valid ask."""

from typing import NoReturn

from msgspec.structs import replace

from tercet.api.ask import Ask
from tercet.api.desk import Desk
from tercet.api.fields import Fields, token_ids, wrong
from tercet.api.sampling import (
    check_prompt_logprobs,
    fit_context,
    read_choices,
    read_delivery,
    read_sampling,
    refuse_hopeless,
)
from tercet.api.service import ServedModel
from tercet.api.ticket import Ticket
from tercet.base.errors import Invalid
from tercet.jobs.job import Job

MAX_TOKENS_DEFAULT = 16

Prompt = str | tuple[int, ...]


async def read_completion(fields: Fields, model: ServedModel, *, desk: Desk, ticket: Ticket) -> Ask:
    """Check everything a client can get wrong and tokenize the prompts."""
    config = desk.config
    asked = read_prompts(fields, model, prompts_max=config.tasks_max)
    n = read_choices(fields, config)
    if len(asked) * n > config.tasks_max:
        wrong("n", n, f"at most {config.tasks_max} completions for {len(asked)} prompts")
    echo = fields.boolean("echo")
    logprobs = fields.integer("logprobs", low=0, high=config.top_logprobs_max)
    delivery = read_delivery(fields, config, logprobs=logprobs)
    max_tokens = fields.integer("max_tokens", low=0 if echo else 1, high=2**31 - 1)
    add_bos = fields.boolean("add_special_tokens", default=True)
    prompts = await _encode(asked, model, desk=desk, add_bos=add_bos)
    room = fit_context(
        model,
        prompt_max=max(map(len, prompts)),
        prompt_field="prompt",
        asked=None if max_tokens is None else max(max_tokens, 1),
        default=MAX_TOKENS_DEFAULT,
    )
    sampling = read_sampling(fields, model, config, delivery=delivery, max_tokens=room)
    if echo and logprobs is not None:
        num_top = max(logprobs, delivery.prompt_logprobs or 0)
        sampling = replace(sampling, prompt_logprobs=num_top)
    check_prompt_logprobs(
        sampling.prompt_logprobs, prompt_tokens=sum(map(len, prompts)), n=n, config=config
    )
    texts = None
    if echo:
        texts = await _echo_texts(asked, model, desk=desk, skip_special=delivery.skip_special)
    return Ask(
        chat=False,
        job=Job(
            id=desk.new_job_id(),
            model=model.names[0],
            prompts=prompts,
            sampling=sampling,
            n=n,
            namespace=ticket.tenant,
            request=ticket.request,
        ),
        model=model,
        name=fields.text("model") or model.names[0],
        delivery=delivery,
        echo=texts,
        discard=max_tokens == 0,
    )


def read_prompts(fields: Fields, model: ServedModel, *, prompts_max: int) -> list[Prompt]:
    """Read `prompt`: a text, token ids, or a list of either; none of them empty."""
    value = fields.raw("prompt")
    if value is None:
        raise Invalid(
            "prompt is missing: a string, a list of token ids, or a list of either was expected.",
            code="missing_parameter",
            parameter="prompt",
        )
    if isinstance(value, str):
        return [value] if value else _empty("prompt")
    if not isinstance(value, list):
        wrong("prompt", value, "a string, a list of token ids, or a list of either")
    if not value:
        _empty("prompt")
    if not isinstance(value[0], str | list):
        return [_read_ids("prompt", value, model)]
    if len(value) > prompts_max:
        wrong("prompt", value, f"at most {prompts_max} prompts")
    return [_read_one(f"prompt[{index}]", entry, model) for index, entry in enumerate(value)]


def _read_one(name: str, entry: object, model: ServedModel) -> Prompt:
    if not isinstance(entry, str | list):
        wrong(name, entry, "a string or a list of token ids, as the entries before it")
    if not entry:
        _empty(name)
    return entry if isinstance(entry, str) else _read_ids(name, entry, model)


def _read_ids(name: str, value: list[object], model: ServedModel) -> tuple[int, ...]:
    if len(value) >= model.context_max:  # too long whatever it holds: look no further
        fit_context(model, prompt_max=len(value), prompt_field="prompt", asked=None, default=1)
    return token_ids(name, value, vocab=model.vocab)


def _empty(name: str) -> NoReturn:
    raise Invalid(
        f"{name} is empty, but at least one token was expected.",
        code="empty_prompt",
        parameter="prompt",
    )


async def _encode(
    asked: list[Prompt], model: ServedModel, *, desk: Desk, add_bos: bool
) -> tuple[tuple[int, ...], ...]:
    texts = [prompt for prompt in asked if isinstance(prompt, str)]
    for text in texts:
        refuse_hopeless(model, text, prompt_field="prompt")
    if not texts:
        return tuple(prompt for prompt in asked if not isinstance(prompt, str))
    encoded = iter(await desk.tokenizing.encode(model, texts, add_bos=add_bos))
    return tuple(next(encoded) if isinstance(prompt, str) else prompt for prompt in asked)


async def _echo_texts(
    asked: list[Prompt], model: ServedModel, *, desk: Desk, skip_special: bool
) -> tuple[str, ...]:
    def decode() -> tuple[str, ...]:
        return tuple(
            prompt
            if isinstance(prompt, str)
            else model.codec.decode(prompt, skip_special=skip_special)
            for prompt in asked
        )

    return await desk.tokenizing.call(sum(map(len, asked)), decode)
