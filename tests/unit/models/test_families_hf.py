"""What config.json of each family says, in transformers' spelling of version 4 and of 5."""

import pytest

from tercet.base.errors import Invalid
from tercet.base.model import RopeScaling
from tercet.models.families import build, shape_from_hf
from tercet.models.families.rope import divisors

LLAMA: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 96,
    "intermediate_size": 176,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 331,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "eos_token_id": [7, 9],
    "bos_token_id": 1,
}
SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def test_llama() -> None:
    shape = shape_from_hf(LLAMA)
    assert (shape.family, shape.head_dim, shape.num_kv_heads) == ("llama", 16, 2)
    assert (shape.rope_theta, shape.rope_scaling, shape.norm_eps) == (500000.0, None, 1e-5)
    assert (shape.end_ids, shape.bos_id) == ((7, 9), 1)
    assert not shape.tied_embeddings
    assert not shape.attention_bias
    assert not shape.qk_norm
    build(shape)


def test_biases_follow_each_family() -> None:
    llama = shape_from_hf(LLAMA | {"attention_bias": True, "mlp_bias": True})
    assert (llama.attention_bias, llama.output_bias, llama.mlp_bias) == (True, True, True)
    qwen2 = shape_from_hf(LLAMA | {"model_type": "qwen2"})
    assert (qwen2.attention_bias, qwen2.output_bias, qwen2.mlp_bias) == (True, False, False)
    qwen3 = shape_from_hf(LLAMA | {"model_type": "qwen3", "head_dim": 128})
    assert (qwen3.attention_bias, qwen3.qk_norm, qwen3.head_dim) == (False, True, 128)
    mistral = shape_from_hf(LLAMA | {"model_type": "mistral", "sliding_window": None})
    assert (mistral.family, mistral.attention_bias) == ("llama", False)


def test_both_spellings_of_rope_parameters_say_the_same() -> None:
    old = shape_from_hf(LLAMA | {"rope_scaling": SCALING})
    new = {key: value for key, value in LLAMA.items() if key != "rope_theta"}
    newer = shape_from_hf(new | {"rope_parameters": SCALING | {"rope_theta": 500000.0}})
    assert old == newer
    assert old.rope_scaling == RopeScaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192
    )
    oldest = {key: value for key, value in SCALING.items() if key != "rope_type"}
    assert shape_from_hf(LLAMA | {"rope_scaling": oldest | {"type": "llama3"}}) == old


def test_llama3_keeps_short_waves_and_stretches_long_ones() -> None:
    scaled = divisors(shape_from_hf(LLAMA | {"rope_scaling": SCALING, "head_dim": 64}))
    assert len(scaled) == 32
    assert (scaled[0], scaled[-1]) == (1.0, 8.0)
    assert sorted(scaled) == list(scaled)
    assert any(1.0 < one < 8.0 for one in scaled)


def test_a_window_that_no_position_feels_is_no_window() -> None:
    shape_from_hf(LLAMA | {"model_type": "mistral", "sliding_window": 2048})
    shape_from_hf(
        LLAMA | {"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": False}
    )
    full = LLAMA | {"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": True}
    shape_from_hf(full | {"max_window_layers": 3})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model_type": "gemma2"}, 'model family "gemma2" is not supported; supported are llama'),
        ({"model_type": None}, "supported are llama"),
        ({"model_type": "qwen2_moe"}, "qwen2_moe"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, 'llama with rope type "yarn"'),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, '"linear"'),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 4.0}}, '"dynamic"'),
        ({"rope_parameters": {"full_attention": {}, "rope_type": "longrope"}}, '"longrope"'),
        ({"hidden_act": "gelu"}, 'hidden_act "gelu"'),
        ({"model_type": "mistral"}, "sliding window"),
        ({"model_type": "mistral", "max_position_embeddings": 8192}, "4096 tokens"),
        ({"model_type": "mistral", "sliding_window": 256}, "256 tokens"),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 64,
             "max_window_layers": 1},
            "qwen2 with an active sliding window",
        ),
        (
            {"model_type": "qwen3", "sliding_window": 64,
             "layer_types": ["full_attention", "sliding_attention", "full_attention"]},
            "qwen3 with an active sliding window",
        ),
        ({"layer_types": ["linear_attention"] * 3}, '"linear_attention"'),
        ({"num_local_experts": 8}, "mixture of experts"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"num_key_value_heads": 4}, "num_key_value_heads is 4, expected a divisor"),
        ({"num_attention_heads": 7, "num_key_value_heads": 7}, "multiple of num_attention_heads"),
        ({"hidden_size": "wide"}, "hidden_size is 'wide', expected a positive integer"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rope_theta": -1}, "rope_theta"),
        ({"tie_word_embeddings": "yes"}, "true or false"),
        ({"eos_token_id": "</s>"}, "eos_token_id"),
        ({"rope_scaling": "llama3"}, "rope_scaling"),
        ({"rope_scaling": SCALING | {"high_freq_factor": 1.0}}, "high_freq_factor"),
        ({"head_dim": 15}, "head_dim is 15, expected an even number"),
    ],
)  # fmt: skip
def test_what_would_be_served_wrongly_is_refused_in_a_sentence(change, sentence) -> None:
    changed = LLAMA | change
    if change == {"model_type": "mistral"}:
        changed |= {"max_position_embeddings": 32768}
    with pytest.raises(Invalid) as refused:
        shape_from_hf(changed)
    assert sentence in refused.value.sentence
    assert "\n" not in refused.value.sentence
