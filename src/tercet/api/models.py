"""Which models there are, and which one a request means."""

import msgspec
from starlette.types import Receive, Scope, Send

from tercet.api.errors import send_body
from tercet.api.fields import Fields
from tercet.api.service import ServedModel, Service
from tercet.api.values import show
from tercet.base.errors import Invalid


def find_model(fields: Fields, service: Service, *, required: bool) -> ServedModel:
    """Give the model that the request names; the first one where it may be silent."""
    name = fields.text("model")
    if name is None:
        if required:
            names = ", ".join(model.names[0] for model in service.models())
            raise Invalid(
                f"model is missing: one of {names} was expected.",
                code="missing_parameter",
                parameter="model",
            )
        name = next((model.names[0] for model in service.models()), "")
    return model_named(name, service)


def model_named(name: str, service: Service) -> ServedModel:
    for model in service.models():
        if name in model.names:
            return model
    names = ", ".join(name for model in service.models() for name in model.names)
    raise Invalid(
        f"The model {show(name)} does not exist here: one of {names or 'none'} was expected.",
        code="model_not_found",
        parameter="model",
    )


class Models:
    """`GET /v1/models` and `GET /v1/models/{id}`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        name = scope["path_params"].get("id")
        if name is None:
            cards = [_card(n, model) for model in self._service.models() for n in model.names]
            body: object = {"object": "list", "data": cards}
        else:
            body = _card(name, model_named(name, self._service))
        await send_body(send, 200, msgspec.json.encode(body))


def _card(name: str, model: ServedModel) -> dict[str, object]:
    return {
        "id": name,
        "object": "model",
        "created": model.created,
        "owned_by": "tercet",
        "root": model.names[0],
        "parent": None,
        "max_model_len": model.context_max,
    }
