"""The shape of a model from GGUF metadata (the format's specification: ggml/docs/gguf.md)."""

from collections.abc import Mapping, Sequence

from tercet.base.model import ModelShape
from tercet.models.families.build import unsupported
from tercet.models.families.fields import Fields, as_integer

ARCHITECTURES = ("llama", "qwen2", "qwen3")


def shape_from_gguf(
    metadata: Mapping[str, object],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    rope_factors: Sequence[float] | None = None,
) -> ModelShape:
    """What the metadata says and which tensors are there; `Invalid` for what is not served.

    `shapes` are the tensors' shapes by GGUF name, in NumPy's order (rows first); `rope_factors`
    the values of the tensor `gguf_names.ROPE_FACTORS` where the file has it.
    """
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise unsupported(f'GGUF architecture "{name}"')
    fields = Fields(metadata, "GGUF metadata")
    _refuse_variants(fields, name)
    hidden, heads = (
        fields.integer(f"{name}.embedding_length"),
        fields.integer(f"{name}.attention.head_count"),
    )
    kv_heads = fields.integer(f"{name}.attention.head_count_kv", heads)
    if heads % kv_heads:
        raise fields.wrong(f"{name}.attention.head_count_kv", f"a divisor of {heads} heads")
    head_dim = _head_dim(fields, name, hidden, heads)
    context_max = fields.integer(f"{name}.context_length")
    window = as_integer(fields.get(f"{name}.attention.sliding_window")) or context_max
    if window < context_max:
        raise unsupported(f"{name} with an active sliding window ({window} tokens)")
    if rope_factors is not None and len(rope_factors) != head_dim // 2:
        raise unsupported(f"{name} with {len(rope_factors)} rope factors for heads of {head_dim}")
    table = shapes.get("token_embd.weight", ())
    vocab = table[0] if table else _num_tokens(metadata)
    bos = fields.ids("tokenizer.ggml.bos_token_id")
    return ModelShape(
        family=name,
        num_layers=fields.integer(f"{name}.block_count"),
        hidden=hidden,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=fields.integer(f"{name}.feed_forward_length"),
        vocab=vocab or fields.integer(f"{name}.vocab_size"),
        context_max=context_max,
        norm_eps=fields.number(f"{name}.attention.layer_norm_rms_epsilon"),
        rope_theta=fields.number(f"{name}.rope.freq_base", 10000.0),
        rope_divisors=() if rope_factors is None else tuple(map(float, rope_factors)),
        tied_embeddings="output.weight" not in shapes,
        attention_bias=name == "qwen2" or "blk.0.attn_q.bias" in shapes,
        output_bias=name != "qwen2" and "blk.0.attn_output.bias" in shapes,
        mlp_bias="blk.0.ffn_up.bias" in shapes,
        qk_norm=name == "qwen3",
        end_ids=fields.ids(
            "tokenizer.ggml.eos_token_id",
            "tokenizer.ggml.eot_token_id",
            "tokenizer.ggml.eom_token_id",
        ),
        bos_id=bos[0] if bos else None,
    )


def _num_tokens(metadata: Mapping[str, object]) -> int | None:
    tokens = metadata.get("tokenizer.ggml.tokens")
    return len(tokens) if isinstance(tokens, Sequence) else None


def _refuse_variants(fields: Fields, name: str) -> None:
    experts = as_integer(fields.get(f"{name}.expert_count")) or 0
    if experts:
        raise unsupported(f"{name} with mixture of experts ({experts} experts)")
    scaling = fields.get(f"{name}.rope.scaling.type")
    if scaling not in (None, "none"):
        raise unsupported(f'{name} with rope type "{scaling}" (served are default and llama3)')
    if fields.number(f"{name}.rope.scale_linear", 1.0) != 1.0:
        raise unsupported(f'{name} with rope type "linear" (served are default and llama3)')


def _head_dim(fields: Fields, name: str, hidden: int, heads: int) -> int:
    if fields.get(f"{name}.attention.key_length") is None and hidden % heads:
        raise fields.wrong(f"{name}.embedding_length", f"a multiple of {heads} heads")
    head_dim = fields.integer(f"{name}.attention.key_length", hidden // heads)
    value_dim = fields.integer(f"{name}.attention.value_length", head_dim)
    rotary = fields.integer(f"{name}.rope.dimension_count", head_dim)
    if value_dim != head_dim or rotary != head_dim or head_dim % 2:
        raise unsupported(
            f"{name} with keys of {head_dim}, values of {value_dim} and {rotary} rotated dimensions"
        )
    return head_dim
