"""What GGUF metadata of each architecture says, and the names of tensors."""

import numpy as np
import pytest

from tercet.base.errors import Invalid, InvariantBroken
from tercet.models.families import (
    build,
    gguf_name,
    gguf_tensor,
    permuted_heads,
    shape_from_gguf,
    unpermute,
)
from tercet.models.families.rope import divisors
from tercet.program.recipes import sources

SHAPES = {"token_embd.weight": (331, 96), "output.weight": (331, 96)}


def metadata(name: str = "llama", **changes: object) -> dict[str, object]:
    own = {
        "block_count": 3,
        "context_length": 2048,
        "embedding_length": 96,
        "feed_forward_length": 176,
        "attention.head_count": 6,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": np.float32(1e-5),
        "rope.freq_base": 500000.0,
    }
    own |= {key.replace("__", "."): value for key, value in changes.items()}
    return {"general.architecture": name, "tokenizer.ggml.eos_token_id": np.uint32(2)} | {
        f"{name}.{key}": value for key, value in own.items()
    }


def test_llama() -> None:
    shape = shape_from_gguf(metadata(), SHAPES)
    assert (shape.family, shape.vocab, shape.head_dim) == ("llama", 331, 16)
    assert (shape.tied_embeddings, shape.end_ids, shape.bos_id) == (False, (2,), None)
    assert shape_from_gguf(metadata(), {"token_embd.weight": (331, 96)}).tied_embeddings
    build(shape)


def test_options_come_from_the_tensors_that_are_there() -> None:
    biases = {"blk.0.attn_q.bias": (96,), "blk.0.attn_output.bias": (96,)}
    shape = shape_from_gguf(metadata(), SHAPES | biases | {"blk.0.ffn_up.bias": (176,)})
    assert (shape.attention_bias, shape.output_bias, shape.mlp_bias) == (True, True, True)
    qwen2 = shape_from_gguf(metadata("qwen2"), SHAPES)
    assert (qwen2.attention_bias, qwen2.output_bias) == (True, False)
    qwen3 = shape_from_gguf(metadata("qwen3", attention__key_length=32), SHAPES)
    assert (qwen3.qk_norm, qwen3.head_dim) == (True, 32)


def test_end_ids_are_those_of_text_and_turn() -> None:
    more = {"tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.eom_token_id": 2}
    assert shape_from_gguf(metadata() | more, SHAPES).end_ids == (2, 5)


def test_heads_given_per_layer_are_taken_when_equal() -> None:
    shape = shape_from_gguf(metadata(attention__head_count_kv=[2, 2, 2]), SHAPES)
    assert shape.num_kv_heads == 2
    with pytest.raises(Invalid, match="head_count_kv"):
        shape_from_gguf(metadata(attention__head_count_kv=[2, 3, 2]), SHAPES)


def test_rope_factors_divide_the_frequencies() -> None:
    factors = np.linspace(1, 8, 8, dtype=np.float32)
    shape = shape_from_gguf(metadata(), SHAPES, rope_factors=factors)
    assert divisors(shape) == tuple(float(one) for one in factors)
    with pytest.raises(Invalid, match="7 rope factors"):
        shape_from_gguf(metadata(), SHAPES, rope_factors=factors[:7])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (metadata("gemma2"), 'GGUF architecture "gemma2" is not supported; supported are llama'),
        ({}, "supported are llama"),
        (metadata(expert_count=8), "mixture of experts"),
        (metadata(rope__scaling__type="yarn"), '"yarn"'),
        (metadata("qwen2", rope__scaling__type="linear"), '"linear"'),
        (metadata(attention__sliding_window=256), "sliding window"),
        (metadata(rope__dimension_count=8), "8 rotated dimensions"),
        (metadata(attention__value_length=8), "values of 8"),
        (metadata(block_count=None), "llama.block_count is missing"),
        (metadata(attention__head_count_kv=4), "divisor of 6 heads"),
    ],
)
def test_what_would_be_served_wrongly_is_refused_in_a_sentence(given, sentence) -> None:
    with pytest.raises(Invalid) as refused:
        shape_from_gguf(given, SHAPES)
    assert sentence in refused.value.sentence


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_names_map_both_ways_for_everything_that_a_program_reads(name: str) -> None:
    biases = {"blk.0.attn_q.bias": (96,), "blk.0.ffn_up.bias": (176,)}
    shape = shape_from_gguf(metadata(name), SHAPES | biases)
    read = [one.name for recipe in build(shape).weights.values() for one in sources(recipe)]
    assert len(read) > 30
    for canonical in read:
        assert gguf_tensor(gguf_name(canonical)) == canonical


def test_tensors_that_nobody_reads_have_no_name() -> None:
    for name in ("rope_freqs.weight", "blk.0.attn_rot_embd.weight", "blk.0.ffn_gate_inp.weight"):
        assert gguf_tensor(name) is None
    with pytest.raises(InvariantBroken):
        gguf_name("model.rotary.inv_freq")


def test_llama_q_and_k_are_put_back_into_halves() -> None:
    heads = {"num_heads": 6, "num_kv_heads": 2}
    assert permuted_heads("blk.4.attn_q.weight", architecture="llama", **heads) == 6
    assert permuted_heads("blk.4.attn_k.bias", architecture="llama", **heads) == 2
    assert permuted_heads("blk.4.attn_v.weight", architecture="llama", **heads) is None
    assert permuted_heads("blk.4.attn_q.weight", architecture="qwen2", **heads) is None
    # As llama.cpp's converter interleaves: halves (0 1 2 | 3 4 5) become 0 3 1 4 2 5.
    rows = np.arange(12, dtype=np.float32)
    stored = rows.reshape(2, 2, 3).swapaxes(1, 2).reshape(12)
    assert list(stored[:6]) == [0, 3, 1, 4, 2, 5]
    np.testing.assert_array_equal(unpermute(stored, 2), rows)
    matrix = np.stack([stored, stored + 100], axis=1)
    np.testing.assert_array_equal(unpermute(matrix, 2)[:, 1], rows + 100)
