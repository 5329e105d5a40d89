"""Shapes of small models of every family, by option."""

from tercet.base.model import ModelShape, RopeScaling

LLAMA = ModelShape(
    family="llama",
    num_layers=2,
    hidden=12,
    num_heads=4,
    num_kv_heads=2,
    head_dim=6,
    ffn=20,
    vocab=33,
    context_max=64,
    norm_eps=1e-5,
    rope_theta=10000.0,
)
LLAMA3 = RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192)
