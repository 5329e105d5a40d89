"""Renders chats with a model's own template, which is foreign code and treated so.

Templates see the names that Hugging Face's see: `messages`, `tools`, `add_generation_prompt`,
the texts of the special tokens (`bos_token`, ...), `raise_exception`, `tojson`, and
`strftime_now` where a clock was given. They run in `templates`, bounded; still off the loop, since
a bound is about a second.

Special tokens that a user writes into a message are rendered like any text, and become control
tokens when the prompt is encoded: the rule of the field (transformers, vLLM), kept so that equal
requests give equal prompts. Who cannot trust the writers of messages removes such tokens first.
"""

from collections.abc import Callable, Mapping, Sequence

from jinja2 import Template, TemplateError, nodes

from tercet.base.errors import Invalid
from tercet.text.codec import Codec
from tercet.text.templates import Sandbox, TemplateRefused, bounded

Message = Mapping[str, object]
_MARK = "\ue000\ue001continue\ue001\ue000 "
"""Put after the message to be continued, cut off again; its last space shows whether a template
trims the ends of messages."""
_RESERVED = frozenset({"messages", "tools", "add_generation_prompt"})


class ChatTemplate:
    """The template of a model, compiled; `open_chat_template` makes it."""

    def __init__(
        self,
        templates: Mapping[str, Template],
        *,
        takes_parts: bool,
        takes_text: bool,
        variables: Mapping[str, object],
    ) -> None:
        self._templates = templates
        self._takes_parts = takes_parts
        self._takes_text = takes_text
        self._variables = variables

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, object] | None = None,
        tools: Sequence[Mapping[str, object]] | None = None,
    ) -> str:
        """The prompt of a chat, to be encoded with `special=True, add_bos=False`.

        `continue_final_message`: the prompt ends where the last message's text ends, and
        `add_generation_prompt` must be off. `template_kwargs` are further variables.
        """
        if not self._templates:
            raise Invalid(
                "this model has no chat template; give one with --chat-template, or use "
                "/v1/completions",
                code="no_chat_template",
                parameter="messages",
            )
        further = dict(template_kwargs or {})
        if clash := _RESERVED.intersection(further):
            raise Invalid(
                f"{min(clash)!r} is not a free variable of a chat template",
                parameter="chat_template_kwargs",
            )
        chat = [self._message(message) for message in messages]
        continued: str | None = None
        if continue_final_message:
            if add_generation_prompt:
                raise Invalid(
                    "add_generation_prompt and continue_final_message cannot both be true",
                    parameter="continue_final_message",
                )
            chat, continued = _marked(chat)
        name = "tool_use" if tools and "tool_use" in self._templates else "default"
        text = _run(
            self._templates[name],
            {
                **self._variables,
                **further,
                "messages": chat,
                "tools": None if tools is None else list(tools),
                "add_generation_prompt": add_generation_prompt,
            },
        )
        return text if continued is None else _cut_at_mark(text, continued)

    def _message(self, message: Message) -> dict[str, object]:
        """The message with its content in the form that the template expects."""
        content = message.get("content")
        if isinstance(content, str):
            parts = [{"type": "text", "text": content}]
            return {**message, "content": content if self._takes_text else parts}
        if content is None:
            return {**message, "content": "" if self._takes_text else []}
        texts = _texts(content)
        if self._takes_parts:
            return {**message, "content": [{"type": "text", "text": text} for text in texts]}
        return {**message, "content": "\n".join(texts)}


def open_chat_template(
    codec: Codec,
    *,
    override: str | None = None,
    strftime_now: Callable[[str], str] | None = None,
) -> ChatTemplate:
    """The codec's template compiled (or `override`'s text); `Invalid` if it is not Jinja.

    A codec without a template gives one whose `render` refuses. `strftime_now` formats the
    current time; templates that ask for it check whether it is there.
    """
    sandbox = Sandbox()
    sources = dict(codec.templates) if override is None else {"default": override}
    if sources and "default" not in sources:
        sources["default"] = next(iter(sources.values()))
    try:
        parsed = {name: sandbox.parse(source) for name, source in sources.items()}
        parts = bool(parsed) and _loops_over_content(parsed["default"])
        text = not parts or _tests_for_string(parsed["default"])
        templates = {name: sandbox.build(tree) for name, tree in parsed.items()}
    except TemplateError as error:
        raise Invalid(
            f"the chat template is not valid Jinja: {error}",
            code="template_error",
            parameter="chat_template",
        ) from error
    variables: dict[str, object] = {"documents": None, **codec.named_tokens}
    if strftime_now is not None:
        variables["strftime_now"] = strftime_now
    return ChatTemplate(
        templates,
        takes_parts=parts,
        takes_text=text,
        variables=variables,
    )


def _run(template: Template, variables: Mapping[str, object]) -> str:
    try:
        return bounded(lambda: template.generate(variables))
    except TemplateRefused as refusal:
        raise Invalid(
            f"the chat template refused the messages: {refusal}",
            code="template_error",
            parameter="messages",
        ) from refusal


def _marked(chat: list[dict[str, object]]) -> tuple[list[dict[str, object]], str]:
    """The chat with a mark after its last text, and that text."""
    if not chat:
        raise Invalid("there is no message to continue", parameter="continue_final_message")
    last = chat[-1]
    content = last["content"]
    marked: object
    if isinstance(content, list):
        text = content[-1]["text"] if content else ""
        marked = [*content[:-1], {"type": "text", "text": text + _MARK}]
    else:
        text = str(content)
        marked = text + _MARK
    return [*chat[:-1], {**last, "content": marked}], text


def _cut_at_mark(text: str, continued: str) -> str:
    cut = text.rfind(_MARK.rstrip())
    if cut < 0 or continued.strip() not in text:
        raise Invalid(
            "the chat template does not show the whole last message, so it cannot be continued",
            code="template_error",
            parameter="continue_final_message",
        )
    kept = text[:cut]
    return kept if text.startswith(_MARK, cut) else kept.rstrip()


def _texts(content: object) -> list[str]:
    if not isinstance(content, Sequence):
        raise Invalid("content is neither a text nor a list of parts", parameter="messages")
    texts = []
    for part in content:
        text = part if isinstance(part, str) else None
        if isinstance(part, Mapping) and part.get("type") in {"text", "input_text"}:
            text = part.get("text")
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise Invalid(
                f"a content part of type {kind!r} is not served; expected parts of type 'text'",
                code="unsupported_content",
                parameter="messages",
            )
        texts.append(text)
    return texts


def _loops_over_content(template: nodes.Template) -> bool:
    """Whether the template takes contents apart, which means that it knows lists of parts."""
    names = {
        assign.target.name
        for assign in template.find_all(nodes.Assign)
        if isinstance(assign.target, nodes.Name) and _is_content(assign.node)
    }
    return any(
        _is_content(loop.iter) or (isinstance(loop.iter, nodes.Name) and loop.iter.name in names)
        for loop in template.find_all(nodes.For)
    )


def _is_content(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    return False


def _tests_for_string(template: nodes.Template) -> bool:
    return any(test.name == "string" for test in template.find_all(nodes.Test))
