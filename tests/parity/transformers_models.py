"""Tiny random models of every family and option, in transformers and as our programs."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from tercet.devices.direct import Direct
from tercet.devices.reference import ReferenceDevice
from tercet.models import families
from tercet.program.fuse import fuse
from tercet.program.recipes import evaluate

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")

torch.set_num_threads(1)  # these models are too small to share among threads
NEAR_TIE = 1e-3
SIZES = {
    "vocab_size": 331,
    "hidden_size": 96,
    "intermediate_size": 176,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "attn_implementation": "eager",
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
CASES: dict[str, tuple[str, dict[str, object]]] = {
    "llama": ("Llama", {}),
    "llama tied": ("Llama", {"tie_word_embeddings": True}),
    "llama biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama llama3 rope": ("Llama", {"rope_parameters": LLAMA3, "head_dim": 32}),
    "llama theta, eps": (
        "Llama",
        {
            "rms_norm_eps": 1e-3,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
        },
    ),
    "llama all heads": ("Llama", {"num_key_value_heads": 6}),
    "llama one key head": ("Llama", {"num_key_value_heads": 1}),
    "llama wide heads": ("Llama", {"head_dim": 40}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral wide heads": ("Mistral", {"sliding_window": None, "head_dim": 32}),
    "qwen2": ("Qwen2", {}),
    "qwen2 tied": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "qwen3 tied": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen3 biases": ("Qwen3", {"head_dim": 24, "attention_bias": True}),
    "one layer, odd sizes": (
        "Llama",
        {"num_hidden_layers": 1, "hidden_size": 105, "num_attention_heads": 5,
         "num_key_value_heads": 5, "head_dim": 6, "intermediate_size": 37},
    ),
}  # fmt: skip


def random_model(case: str):
    """The model of a case, every parameter (norms and biases too) random, float32."""
    name, options = CASES[case]
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **options})
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    chance = torch.Generator().manual_seed(sum(map(ord, case)))
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=chance)
            if parameter_name.endswith("norm.weight"):
                parameter.copy_(1.0 + 0.2 * noise)
            elif parameter.ndim == 1:
                parameter.copy_(0.2 * noise)
            else:
                parameter.copy_(noise / parameter.shape[1] ** 0.5)
    return model


@dataclass(frozen=True)
class Ours:
    """The same model on the reference device."""

    executable: object

    def direct(self, num_tokens: int, num_sequences: int = 1) -> Direct:
        blocks = num_sequences * (num_tokens // 16 + 2)
        return Direct(self.executable, blocks)


def ours(model) -> Ours:
    """From config and state dict alone, as from a checkpoint."""
    shape = families.shape_from_hf(model.config.to_dict())
    state = {name: tensor.float().numpy() for name, tensor in model.state_dict().items()}
    program = fuse(families.build(shape))
    weights = {
        name: evaluate(recipe, state.__getitem__) for name, recipe in program.weights.items()
    }
    return Ours(ReferenceDevice().compile(program, weights))


def their_logits(model, ids: Sequence[int]) -> np.ndarray:
    """[len(ids), V] in the model's own precision."""
    with torch.no_grad():
        return model(torch.tensor([list(ids)])).logits[0].numpy()


def their_greedy(model, ids: Sequence[int], count: int) -> tuple[list[int], list[float]]:
    """Greedy tokens by cached decode, and how far ahead of the second each one was."""
    tokens: list[int] = []
    margins: list[float] = []
    with torch.no_grad():
        inputs, cache = torch.tensor([list(ids)]), None
        for _ in range(count):
            answer = model(inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache = answer.past_key_values
            best = answer.logits[0, -1].topk(2)
            tokens.append(int(best.indices[0]))
            margins.append(float(best.values[0] - best.values[1]))
            inputs = best.indices[:1][None]
    return tokens, margins


def agree_until_tie(one: Sequence[int], other: Sequence[int], margins: Sequence[float]) -> int:
    """How many tokens were compared: all, or those before the first near-tie; they are equal."""
    tie = next((at for at, margin in enumerate(margins) if margin < NEAR_TIE), len(margins))
    assert list(one[:tie]) == list(other[:tie])
    return tie
