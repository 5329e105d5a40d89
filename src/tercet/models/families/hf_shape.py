"""The shape of a model from a Hugging Face configuration (config.json)."""

from collections.abc import Mapping

from tercet.base.model import ModelShape, RopeScaling
from tercet.models.families.build import unsupported
from tercet.models.families.fields import Fields, as_integer

FAMILY_OF_TYPE = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
_WHERE = "config.json"
_MISTRAL_WINDOW = 4096
_EXPERT_KEYS = ("num_local_experts", "num_experts", "n_routed_experts")


def shape_from_hf(config: Mapping[str, object]) -> ModelShape:
    """What config.json says; `Invalid` in one sentence for a model that would be served wrongly.

    `end_ids` are those of this file; a generation config may say more.
    """
    fields = Fields(config, _WHERE)
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILY_OF_TYPE:
        raise unsupported(f'model family "{kind}"')
    _refuse_variants(fields, kind)
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    kv_heads = fields.integer("num_key_value_heads", heads)
    if heads % kv_heads:
        raise fields.wrong("num_key_value_heads", f"a divisor of num_attention_heads ({heads})")
    if config.get("head_dim") is None and hidden % heads:
        raise fields.wrong("hidden_size", f"a multiple of num_attention_heads ({heads})")
    head_dim = fields.integer("head_dim", hidden // heads)
    if head_dim % 2:
        raise fields.wrong("head_dim", "an even number")
    context_max = fields.integer("max_position_embeddings", 2048)
    _refuse_window(fields, kind, context_max)
    rope = _rope(config)
    bias = kind == "qwen2" or (kind != "mistral" and fields.flag("attention_bias"))
    bos = fields.ids("bos_token_id")
    return ModelShape(
        family=FAMILY_OF_TYPE[kind],
        num_layers=fields.integer("num_hidden_layers"),
        hidden=hidden,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=fields.integer("intermediate_size"),
        vocab=fields.integer("vocab_size"),
        context_max=context_max,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope_theta=rope.number("rope_theta", fields.number("rope_theta", 10000.0)),
        rope_scaling=_scaling(rope, kind),
        tied_embeddings=fields.flag("tie_word_embeddings"),
        attention_bias=bias,
        output_bias=bias and kind != "qwen2",
        mlp_bias=kind == "llama" and fields.flag("mlp_bias"),
        qk_norm=kind == "qwen3",
        end_ids=fields.ids("eos_token_id"),
        bos_id=bos[0] if bos else None,
    )


def _refuse_variants(fields: Fields, kind: str) -> None:
    architectures = fields.get("architectures")
    if isinstance(architectures, list) and architectures:
        names = [str(one) for one in architectures]
        if not any(name.endswith("ForCausalLM") for name in names):
            raise unsupported(f'architecture "{names[0]}" (no causal language model)')
    activation = fields.get("hidden_act")
    if activation not in (None, "silu", "swish"):
        raise unsupported(f'{kind} with hidden_act "{activation}"')
    for key in _EXPERT_KEYS:
        if fields.get(key):
            raise unsupported(f"{kind} with mixture of experts ({key} {fields.get(key)})")
    partial = fields.get("partial_rotary_factor")
    if partial not in (None, 1, 1.0):
        raise unsupported(f"{kind} with partial_rotary_factor {partial}")


def _refuse_window(fields: Fields, kind: str, context_max: int) -> None:
    """Refuse a window that some position within the context would feel."""
    layers = fields.get("layer_types")
    kinds = [str(one) for one in layers] if isinstance(layers, list) else None
    for one in kinds or []:
        if one not in ("full_attention", "sliding_attention"):
            raise unsupported(f'{kind} with layers of type "{one}"')
    num_layers = fields.integer("num_hidden_layers")
    if kinds is not None:
        active = "sliding_attention" in kinds
    elif kind.startswith("qwen"):
        full_layers = as_integer(fields.get("max_window_layers")) or 0
        active = fields.flag("use_sliding_window") and full_layers < num_layers
    else:
        active = kind == "mistral"
    # transformers gives a Mistral without the key its default; a null means no window.
    absent = _MISTRAL_WINDOW if "sliding_window" not in fields else context_max
    if active and (window := fields.integer("sliding_window", absent)) < context_max:
        raise unsupported(f"{kind} with an active sliding window ({window} tokens)")


def _rope(config: Mapping[str, object]) -> Fields:
    """The rotary parameters, as transformers 5 (`rope_parameters`) or 4 spells them."""
    for key in ("rope_parameters", "rope_scaling"):
        value = config.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise Fields(config, _WHERE).wrong(key, "an object or null")
        if value:
            return Fields(value, f"{_WHERE}, {key}")
    return Fields({}, _WHERE)


def _scaling(rope: Fields, kind: str) -> RopeScaling | None:
    name = rope.get("rope_type") or rope.get("type") or "default"
    if rope.get("partial_rotary_factor") not in (None, 1, 1.0):
        raise unsupported(f"{kind} with partial_rotary_factor")
    if name == "default":
        return None
    if name != "llama3":
        raise unsupported(f'{kind} with rope type "{name}" (served are default and llama3)')
    scaling = RopeScaling(
        factor=rope.number("factor"),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
        original_context=rope.integer("original_max_position_embeddings"),
    )
    if scaling.high_freq_factor <= scaling.low_freq_factor:
        raise rope.wrong("high_freq_factor", "more than low_freq_factor")
    return scaling
