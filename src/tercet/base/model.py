"""The shape of a model: the numbers that a family's program, a cache and a planner need."""

from msgspec import Struct


class RopeScaling(Struct, frozen=True, kw_only=True):
    """Frequency scaling of Llama 3 (`rope_type: llama3`)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


class ModelShape(Struct, frozen=True, kw_only=True):
    """Sizes of a decoder; every family that is served today fits them."""

    family: str
    """Name of the family in `models.families`: `llama`, `qwen2`, `qwen3`."""
    num_layers: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context_max: int
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    rope_divisors: tuple[float, ...] = ()
    """Divisors of the head_dim/2 rotary frequencies where a checkpoint names them (GGUF)."""
    tied_embeddings: bool = False
    attention_bias: bool = False
    """Biases on q, k, v (and on o where `output_bias`)."""
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    end_ids: tuple[int, ...] = ()
    """Tokens that end a text, from generation config or metadata."""
    bos_id: int | None = None

    @property
    def kv_values_per_token(self) -> int:
        """Numbers (K and V, all layers) that one token leaves in the cache."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim


class SamplingDefaults(Struct, frozen=True, kw_only=True):
    """What a model's makers recommend where a client is silent (its generation config)."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


NEUTRAL = SamplingDefaults()
"""Of a model whose makers recommend nothing."""
