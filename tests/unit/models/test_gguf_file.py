"""GGUF tensors: every element type, llama's interleaving, split files, and what is refused."""

import re
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.quants import _type_traits
from small_models import TINY, finish, gguf_writer, tiny_tensors, write_gguf

from tercet.base.errors import Invalid
from tercet.models.checkpoints.gguf_file import open_gguf
from tercet.models.sources import open_checkpoint

Kind = gguf.GGMLQuantizationType
DEQUANTIZED = [Kind.F32, Kind.F16, *_type_traits]
QUANTIZED_BY_PACKAGE = [Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_1, Kind.Q5_0]


@pytest.mark.parametrize("source", [TINY, "random:qwen2", "random:qwen3?tied=1"])
def test_gives_the_tensors_and_the_shape_that_were_written(tmp_path: Path, source: str) -> None:
    checkpoint = open_gguf(write_gguf(tmp_path / "a.gguf", source))
    made = tiny_tensors(source)
    assert sorted(checkpoint.tensor_names()) == sorted(made)
    for name, array in made.items():
        np.testing.assert_array_equal(checkpoint.read(name), array, err_msg=name)
        assert checkpoint.describe(name).shape == array.shape
    expected = open_checkpoint(source).facts().shape
    got = checkpoint.facts().shape
    assert got.end_ids == (257,)
    for field in ("family", "num_layers", "hidden", "num_kv_heads", "head_dim", "vocab",
                  "tied_embeddings", "attention_bias", "qk_norm"):  # fmt: skip
        assert getattr(got, field) == getattr(expected, field), field


@pytest.mark.parametrize("kind", QUANTIZED_BY_PACKAGE, ids=lambda kind: kind.name)
def test_quantized_matrices_of_a_model(tmp_path: Path, kind: Kind) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    checkpoint = open_gguf(write_gguf(tmp_path / "a.gguf", kind=kind))
    array = tiny_tensors()[name]
    expected = gguf.dequantize(gguf.quantize(array, kind), kind)
    np.testing.assert_array_equal(checkpoint.read(name), expected.reshape(array.shape))
    assert checkpoint.describe(name).dtype == kind.name


BLOCK_KINDS = [Kind.Q4_0, Kind.Q4_1, Kind.Q8_0]


@pytest.mark.parametrize("kind", BLOCK_KINDS, ids=lambda kind: kind.name)
def test_blocks_are_the_files_own_with_rows_as_read_gives_them(tmp_path: Path, kind: Kind) -> None:
    checkpoint = open_gguf(write_gguf(tmp_path / "a.gguf", kind=kind))
    for part in ("mlp.up_proj", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
        name = f"model.layers.1.{part}.weight"
        blocks = checkpoint.read_blocks(name)
        read = checkpoint.read(name)
        assert blocks.dtype == np.uint8
        assert blocks.shape[0] == read.shape[0]
        np.testing.assert_array_equal(gguf.dequantize(blocks, kind), read, err_msg=name)
    with pytest.raises(Invalid, match=r"norm\.weight' as F32, not in blocks"):
        checkpoint.read_blocks("model.norm.weight")
    with pytest.raises(Invalid, match=r"holds no tensor 'nothing'"):
        checkpoint.read_blocks("nothing")


@pytest.mark.parametrize("kind", DEQUANTIZED, ids=lambda kind: kind.name)
def test_every_type_that_the_package_dequantizes(tmp_path: Path, kind: Kind) -> None:
    """Blocks of any bytes, as the embedding of an otherwise tiny file."""
    shape = open_checkpoint("random:llama?hidden=256&vocab=260").facts().shape
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(1).integers(0, 60, (shape.vocab, 256 // block * size), np.uint8)
    writer = gguf_writer(tmp_path / "a.gguf", shape)
    element = {Kind.F32: np.float32, Kind.F16: np.float16}.get(kind, np.uint8)
    writer.add_tensor("token_embd.weight", blocks.view(element), raw_dtype=kind)
    for index in range(shape.num_layers):
        writer.add_tensor(f"blk.{index}.attn_norm.weight", np.ones(256, np.float32))
    finish(writer)
    array = open_gguf(tmp_path / "a.gguf").read("model.embed_tokens.weight")
    expected = gguf.GGUFReader(tmp_path / "a.gguf").get_tensor(0)
    np.testing.assert_array_equal(array, gguf.dequantize(expected.data, kind))
    assert array.shape == (260, 256)
    assert array.dtype == np.float32


def test_rope_factors_become_divisors_and_no_weight(tmp_path: Path) -> None:
    factors = np.linspace(1, 8, 8).astype(np.float32)
    path = write_gguf(
        tmp_path / "a.gguf", also=lambda writer: writer.add_tensor("rope_freqs.weight", factors)
    )
    assert open_gguf(path).facts().shape.rope_divisors == tuple(factors.tolist())


def split(path: Path, folder: Path, count: int) -> list[Path]:
    """The file's tensors over `count` files, as llama.cpp's gguf-split names and marks them."""
    reader = gguf.GGUFReader(path)
    parts = []
    for number in range(count):
        part = folder / f"m-{number + 1:05}-of-{count:05}.gguf"
        shape = open_checkpoint(TINY).facts().shape
        writer = gguf_writer(part, shape) if number == 0 else gguf.GGUFWriter(part, "llama")
        writer.add_uint16("split.count", count)
        writer.add_uint16("split.no", number)
        for tensor in reader.tensors[number::count]:
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
        finish(writer)
        parts.append(part)
    return parts


def test_a_split_file_is_read_whole_from_its_first_part(tmp_path: Path) -> None:
    parts = split(write_gguf(tmp_path / "a.gguf"), tmp_path, 3)
    checkpoint = open_gguf(parts[0])
    for name, array in tiny_tensors().items():
        np.testing.assert_array_equal(checkpoint.read(name), array)
    assert checkpoint.facts().files == tuple(str(part) for part in parts)
    with pytest.raises(Invalid, match=r"is a part of 3; name the first"):
        open_gguf(parts[1])


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    parts = split(write_gguf(tmp_path / "a.gguf"), tmp_path, 3)
    parts[2].unlink()
    with pytest.raises(Invalid, match=re.escape(f"of which {parts[2]} is missing")):
        open_gguf(parts[0])


@pytest.mark.parametrize("cut", [1, 1000, 30_000])
def test_a_truncated_file_names_the_tensor(tmp_path: Path, cut: int) -> None:
    path = write_gguf(tmp_path / "a.gguf")
    content = path.read_bytes()
    path.write_bytes(content[:-cut])
    with pytest.raises(Invalid, match=r"a\.gguf is truncated: tensor '[\w.]+' ends at byte"):
        open_gguf(path)


def patched(path: Path, tensor: str, at: int, form: str, value: int) -> Path:
    """The file with one number of a tensor's row changed; `at` counts from the name's end."""
    content = bytearray(path.read_bytes())
    name = struct.pack("<Q", len(tensor)) + tensor.encode()
    struct.pack_into(form, content, content.index(name) + len(name) + at, value)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("at", "form", "value", "said"),
    [
        (20, "<I", 4711, "of the unknown type 4711"),
        (20, "<I", Kind.Q4_K, r"of type Q4_K the dimensions \(64, 260\)"),
        (20, "<I", Kind.I8, "as I8, which isn't read"),
        (24, "<Q", 1 << 60, "ends at byte 1152921504606"),
        (24, "<Q", 33, "begins at 33, unaligned"),
        (24, "<Q", 128, "overlaps another"),
        (4, "<Q", 1 << 61, "ends at byte"),
        (4, "<Q", 0, r"the dimensions \(0, 260\)"),
    ],
)
def test_a_lying_table_is_refused(
    tmp_path: Path, at: int, form: str, value: int, said: str
) -> None:
    path = patched(write_gguf(tmp_path / "a.gguf"), "token_embd.weight", at, form, value)
    with pytest.raises(Invalid, match=said) as caught:
        open_gguf(path).read("model.embed_tokens.weight")
    assert caught.value.sentence.startswith(str(path))
    assert "token" in caught.value.sentence or "overlaps" in caught.value.sentence


def test_metadata_that_promise_a_billion_layers_are_refused_at_once(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf")
    content = bytearray(path.read_bytes())
    key = b"llama.block_count"
    struct.pack_into("<I", content, content.index(key) + len(key) + 4, 1_000_000_000)
    path.write_bytes(content)
    with pytest.raises(Invalid, match="its metadata speaks of 1000000000 layers"):
        open_gguf(path)


def test_an_architecture_that_is_not_served_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "mamba")
    writer.add_tensor("token_embd.weight", np.ones((4, 4), np.float32))
    finish(writer)
    with pytest.raises(Invalid, match=r"a\.gguf: GGUF architecture \"mamba\" is not supported"):
        open_gguf(tmp_path / "a.gguf")


def test_a_tensor_that_is_not_there(tmp_path: Path) -> None:
    checkpoint = open_gguf(write_gguf(tmp_path / "a.gguf"))
    with pytest.raises(Invalid, match=r"a\.gguf holds no tensor 'lm_tail\.weight'"):
        checkpoint.read("lm_tail.weight")
