"""`/v1/chat/completions`: from messages to a valid ask, through the model's template."""

from tercet.api.ask import Ask
from tercet.api.desk import Desk
from tercet.api.fields import Fields, wrong
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
from tercet.api.values import kind_of, show
from tercet.base.errors import Invalid
from tercet.jobs.job import Job

Message = dict[str, object]

_MESSAGE_CHARS = 100
"""What rendering a message costs besides its text, in characters that cost as much."""
_ROLES = ("system", "developer", "user", "assistant")
_ROLES_LATER = ("tool", "function")
_PARTS_LATER = ("image_url", "input_image", "input_audio", "audio_url", "video_url", "file")
_MEMBERS_LATER = ("tool_calls", "tool_call_id", "function_call", "audio")
_MEMBERS_IDLE = ("refusal", "annotations", "reasoning", "reasoning_content")
"""What SDKs send back when they repeat an answer: accepted, not shown to the model."""


async def read_chat(fields: Fields, model: ServedModel, *, desk: Desk, ticket: Ticket) -> Ask:
    """Check everything a client can get wrong, render the messages and tokenize them."""
    config = desk.config
    n = read_choices(fields, config)
    if n > config.tasks_max:
        wrong("n", n, f"at most {config.tasks_max}")
    delivery = read_delivery(fields, config, logprobs=_logprobs(fields, config.top_logprobs_max))
    max_tokens = _max_tokens(fields)
    prompt = await read_messages(fields, model, desk=desk)
    room = fit_context(
        model,
        prompt_max=len(prompt),
        prompt_field="messages",
        asked=max_tokens,
        default=None,
    )
    sampling = read_sampling(fields, model, config, delivery=delivery, max_tokens=room)
    check_prompt_logprobs(sampling.prompt_logprobs, prompt_tokens=len(prompt), n=n, config=config)
    return Ask(
        chat=True,
        job=Job(
            id=desk.new_job_id(),
            model=model.names[0],
            prompts=(prompt,),
            sampling=sampling,
            n=n,
            namespace=ticket.tenant,
            request=ticket.request,
        ),
        model=model,
        name=fields.text("model") or model.names[0],
        delivery=delivery,
    )


async def read_messages(fields: Fields, model: ServedModel, *, desk: Desk) -> tuple[int, ...]:
    """Give the tokens of the rendered chat."""
    if model.template is None:
        raise Invalid(
            f"The model {model.names[0]} has no chat template: use /v1/completions.",
            code="no_chat_template",
            parameter="messages",
        )
    template = model.template
    messages = _messages(fields)
    going_on = fields.boolean("continue_final_message")
    opening = fields.boolean("add_generation_prompt", default=not going_on)
    if going_on and opening:
        raise Invalid(
            "continue_final_message and add_generation_prompt can't both be true.",
            parameter="continue_final_message",
        )
    if going_on and messages[-1]["role"] != "assistant":
        raise Invalid(
            "continue_final_message was asked for, but the last message is not the assistant's.",
            parameter="continue_final_message",
        )
    variables = fields.object_of("chat_template_kwargs") or {}
    size = sum(_MESSAGE_CHARS + len(str(message["content"])) for message in messages)

    def render() -> str:
        return template.render(
            messages,
            add_generation_prompt=opening,
            continue_final_message=going_on,
            template_kwargs=variables,
        )

    text = await desk.tokenizing.call(size, render)
    refuse_hopeless(model, text, prompt_field="messages")
    add_bos = fields.boolean("add_special_tokens")
    return (await desk.tokenizing.encode(model, [text], add_bos=add_bos))[0]


def _logprobs(fields: Fields, top_max: int) -> int | None:
    wanted = fields.boolean("logprobs")
    num_top = fields.integer("top_logprobs", low=0, high=top_max)
    if num_top is not None and not wanted:
        raise Invalid("top_logprobs is only for logprobs: true.", parameter="top_logprobs")
    return (num_top or 0) if wanted else None


def _max_tokens(fields: Fields) -> int | None:
    newer = fields.integer("max_completion_tokens", low=1, high=2**31 - 1)
    older = fields.integer("max_tokens", low=1, high=2**31 - 1)
    if newer is not None and older is not None and newer != older:
        raise Invalid(
            f"max_tokens is {older} and max_completion_tokens is {newer}: one was expected.",
            parameter="max_completion_tokens",
        )
    return older if newer is None else newer


def _messages(fields: Fields) -> list[Message]:
    value = fields.raw("messages")
    if value is None:
        raise Invalid(
            "messages is missing: a list of messages was expected.",
            code="missing_parameter",
            parameter="messages",
        )
    if not isinstance(value, list) or not value:
        wrong("messages", value, "a list of at least one message")
    return [_message(f"messages[{index}]", entry) for index, entry in enumerate(value)]


def _message(name: str, entry: object) -> Message:
    if not isinstance(entry, dict):
        wrong(name, entry, "an object with role and content")
    role = entry.get("role")
    if role in _ROLES_LATER:
        _later(f"{name}.role", role)
    if role not in _ROLES:
        wrong(f"{name}.role", role, f"one of {', '.join(_ROLES)}")
    for member, value in entry.items():
        if member in {"role", "content"} or value is None or value in ([], ""):
            continue
        if member in _MEMBERS_LATER:
            _later(f"{name}.{member}", value)
        if member == "name" and not isinstance(value, str):
            wrong(f"{name}.name", value, "a string")
        if member != "name" and member not in _MEMBERS_IDLE:
            raise Invalid(
                f"{name} has an unknown member: {show(member)}.",
                code="unknown_parameter",
                parameter="messages",
            )
    # Templates know of "system" alone; "developer" is its newer name.
    return {
        "role": "system" if role == "developer" else role,
        "content": _content(f"{name}.content", entry.get("content")),
    }


def _content(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        wrong(name, value, "a string or a list of text parts")
    return "\n".join(_part(f"{name}[{index}]", part) for index, part in enumerate(value))


def _part(name: str, part: object) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _PARTS_LATER:
        _later(f"{name}.type", kind)
    text = part.get("text") if isinstance(part, dict) else None
    if kind != "text" or not isinstance(text, str):
        shown = kind_of(part) if kind is None else show(kind)
        raise Invalid(
            f'{name} is {shown}, but {{"type": "text", "text": "..."}} was expected.',
            parameter="messages",
        )
    return text


def _later(name: str, value: object) -> None:
    raise Invalid(
        f"{name} is not served yet: {show(value)} can't be honoured.",
        code="unsupported_parameter",
        parameter="messages",
    )
