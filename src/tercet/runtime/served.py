"""The model as clients see it: names, text, limits."""

import time
from collections.abc import Mapping

from tercet.api.service import ServedModel
from tercet.models import OpenedModel, open_model
from tercet.runtime.config import TreeConfig
from tercet.runtime.opening import cache_of
from tercet.text.codec import Codec


def served_names(config: TreeConfig) -> tuple[str, ...]:
    """Give what clients may call the model; the first is what machines call it."""
    return config.served_names or (config.model,)


def open_served(config: TreeConfig) -> ServedModel:
    """Open the model as far as text needs it; `Invalid` says why it cannot be served."""
    from tercet.text.load import load_codec

    model = open_model(config.model, cache=cache_of(config))
    return serve_model(config, model, load_codec(model.tokenizer_source))


def quick_codec(config: TreeConfig, model: OpenedModel) -> Codec:
    """Give the model's codec without building the whole of its tokenizer, where that is possible:
    for who has few and short texts to cut.
    """
    # Each way needs modules that the other one has no use for.
    if not isinstance(model.tokenizer_source, Mapping):
        from tercet.text.load import load_codec

        return load_codec(model.tokenizer_source)
    from tercet.text.compact import keep_compact, load_compact

    path = cache_of(config).vocabularies / f"{model.content}.vocabulary"
    known = load_compact(path, model.content)
    if known is not None:
        return known
    from tercet.text.gguf_source import read_gguf
    from tercet.text.load import codec_of

    vocabulary = read_gguf(model.tokenizer_source)
    codec = codec_of(vocabulary)
    keep_compact(path, model.content, vocabulary)
    return codec


def serve_model(
    config: TreeConfig, model: OpenedModel, codec: Codec, *, chats: bool = True
) -> ServedModel:
    """Give an opened model as clients see it; who never chats need not load templates."""
    template = None
    if chats and (codec.templates or config.chat_template is not None):
        from tercet.text.chat import open_chat_template  # takes as long as all the rest here

        template = open_chat_template(
            codec, override=config.chat_template, strftime_now=time.strftime
        )
    context_max = model.shape.context_max
    return ServedModel(
        names=served_names(config),
        created=int(time.time()),
        context_max=min(context_max, config.context_max or context_max),
        vocab=model.shape.vocab,
        codec=codec,
        template=template,
        end_ids=tuple(dict.fromkeys((*model.shape.end_ids, *codec.end_ids))),
        defaults=model.defaults,
    )
