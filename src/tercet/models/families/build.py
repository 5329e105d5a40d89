"""The table of families, each a function from shape to program."""

from collections.abc import Callable

from tercet.base.errors import Invalid, must
from tercet.base.model import ModelShape
from tercet.models.families.decoder import decoder
from tercet.program.program import Program

SUPPORTED = "llama (Llama 2 and 3, SmolLM2), mistral (without sliding window), qwen2, qwen3"


def build(shape: ModelShape) -> Program:
    """The program of a model's step, unfused; weights are recipes over Hugging Face names."""
    if shape.family not in FAMILIES:
        raise unsupported(f'model family "{shape.family}"')
    return FAMILIES[shape.family](shape)


def unsupported(what: str) -> Invalid:
    """The refusal of a model: one sentence with what it is and what would be served."""
    sentence = f"{what} is not supported; supported are {SUPPORTED}"
    return Invalid(sentence, code="model_not_supported", parameter="model")


def llama(shape: ModelShape) -> Program:
    """Llama (Touvron et al. 2023; Grattafiori et al. 2024) and Mistral without a window."""
    must(not shape.qk_norm, "llama has no norms on queries and keys")
    return decoder(shape)


def qwen2(shape: ModelShape) -> Program:
    """Qwen2 and Qwen2.5 (Yang et al. 2024): Llama with biases on queries, keys and values."""
    must(shape.attention_bias and not shape.output_bias, "qwen2 has biases on q, k and v alone")
    return decoder(shape)


def qwen3(shape: ModelShape) -> Program:
    """Qwen3 (Yang et al. 2025): Llama with a norm over every head of queries and keys."""
    must(shape.qk_norm, "qwen3 has norms on queries and keys")
    return decoder(shape)


FAMILIES: dict[str, Callable[[ModelShape], Program]] = {
    "llama": llama,
    "qwen2": qwen2,
    "qwen3": qwen3,
}
