"""SmolLM2 in transformers: the checkpoint's weights, dequantized to float32, eager attention."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.models import opened
from tercet.models.sources import open_checkpoint


def load() -> LlamaForCausalLM:
    """Build the model with all weights in place."""
    model = opened()
    shape, checkpoint = model.shape, open_checkpoint(model.location)
    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.context_max,
        rms_norm_eps=shape.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        tie_word_embeddings=shape.tied_embeddings,
        attn_implementation="eager",
    )
    peer = LlamaForCausalLM(config).eval()
    names = checkpoint.tensor_names()
    state = {name: torch.from_numpy(checkpoint.read(name).copy()) for name in names}
    loaded = peer.load_state_dict(state, strict=False)
    if loaded.unexpected_keys or set(loaded.missing_keys) - {"lm_head.weight"}:
        raise RuntimeError(f"weights do not fit: {loaded}")
    peer.tie_weights()
    return peer
