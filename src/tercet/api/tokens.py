"""`/tokenize` and `/detokenize`: the model's tokenizer for whoever wants to count or to look."""

from collections.abc import Sequence

import msgspec
from starlette.types import Receive, Scope, Send

from tercet.api.body import Disconnected, read_object
from tercet.api.chat import read_messages
from tercet.api.desk import Desk
from tercet.api.errors import send_body
from tercet.api.fields import DETOKENIZE, TOKENIZE, Fields, token_ids, wrong
from tercet.api.models import find_model
from tercet.api.service import ServedModel, Service
from tercet.base.errors import Invalid


class Tokenize:
    """A text (`prompt`) or a chat (`messages`) to the tokens that a request would have."""

    def __init__(self, service: Service, desk: Desk) -> None:
        self._service = service
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_object(scope, receive, self._desk.config)
        except Disconnected:
            return
        fields = Fields(body, TOKENIZE)
        model = find_model(fields, self._service, required=False)
        tokens = await self._tokens(fields, model)
        wants_strings = fields.boolean("return_token_strs")

        def answer() -> bytes:
            text_of = model.codec.token_text
            return msgspec.json.encode(
                {
                    "count": len(tokens),
                    "max_model_len": model.context_max,
                    "tokens": tokens,
                    "token_strs": [text_of(token) for token in tokens] if wants_strings else None,
                }
            )

        await send_body(send, 200, await self._desk.tokenizing.call(len(tokens), answer))

    async def _tokens(self, fields: Fields, model: ServedModel) -> Sequence[int]:
        text = fields.text("prompt")
        if fields.given("messages"):
            if text is not None:
                raise Invalid("Either prompt or messages was expected.", parameter="messages")
            return await read_messages(fields, model, desk=self._desk)
        if text is None:
            raise Invalid(
                "prompt is missing: a string was expected (or messages).",
                code="missing_parameter",
                parameter="prompt",
            )
        if not text:
            return []
        chars_max = self._desk.config.tokenize_chars_max
        if len(text) > chars_max:
            raise Invalid(
                f"prompt has {len(text)} characters, but at most {chars_max} are tokenized.",
                parameter="prompt",
            )
        add_bos = fields.boolean("add_special_tokens", default=True)
        return (await self._desk.tokenizing.encode(model, [text], add_bos=add_bos))[0]


class Detokenize:
    """Tokens to their text, special ones included."""

    def __init__(self, service: Service, desk: Desk) -> None:
        self._service = service
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_object(scope, receive, self._desk.config)
        except Disconnected:
            return
        fields = Fields(body, DETOKENIZE)
        model = find_model(fields, self._service, required=False)
        value = fields.raw("tokens")
        if not isinstance(value, list):
            wrong("tokens", value, "a list of token ids")
        if len(value) > self._desk.config.detokenize_max:
            wrong("tokens", value, f"at most {self._desk.config.detokenize_max} token ids")
        tokens = token_ids("tokens", value, vocab=model.vocab)
        text = await self._desk.tokenizing.call(
            len(tokens), lambda: model.codec.decode(tokens, skip_special=False)
        )
        await send_body(send, 200, msgspec.json.encode({"prompt": text}))
