"""Which inputs can be scaled, and what takes the scale up: nothing changes but the numbers."""

import numpy as np
import pytest

from tercet.devices.direct import Direct, Sequence
from tercet.devices.reference.device import ReferenceDevice
from tercet.models.families.build import build
from tercet.models.sources import open_checkpoint
from tercet.quantization.sites import sites
from tercet.quantization.smoothing import absorb
from tercet.quantization.tensors import Tensors, exact_program

LLAMA = "random:llama?layers=2&hidden=24&heads=4&kv_heads=2&head_dim=6&ffn=20"
SOURCES = [LLAMA, f"{LLAMA}&tied=1", LLAMA.replace("llama", "qwen2"), LLAMA.replace("llama", "qwen3")]  # fmt: skip  # noqa: E501


def tensors_of(source: str) -> Tensors:
    checkpoint = open_checkpoint(source)
    return Tensors({name: checkpoint.read(name) for name in checkpoint.tensor_names()})


def logits(source: str, tensors: Tensors) -> np.ndarray:
    shape = open_checkpoint(source).facts().shape
    executable = ReferenceDevice().compile(*exact_program(shape, tensors))
    direct = Direct(executable, 2)
    ids = [5, 17, 200, 3, 3, 90, 101]
    return executable.logits(direct.batch([(Sequence(), ids)], every_row=True)).copy()


def test_every_matrix_of_the_layers_is_read_at_one_site() -> None:
    found = sites(build(open_checkpoint(LLAMA).facts().shape))
    assert [site.name for site in found[:4]] == [
        "layers.0.normed1",
        "layers.0.attended",
        "layers.0.normed2",
        "layers.0.glu",
    ]
    readers = [name for site in found for name in site.readers]
    assert len(readers) == len(set(readers)) == 2 * 7
    assert all("_proj.weight" in name for name in readers)


def test_heads_that_share_keys_share_what_takes_a_scale_up() -> None:
    site = sites(build(open_checkpoint(LLAMA).facts().shape))[1]
    assert site.absorber is not None
    assert site.absorber.tensors == ("model.layers.0.self_attn.v_proj.weight",)
    # Heads 0 and 1 read value head 0, heads 2 and 3 read value head 1.
    expected = np.concatenate([np.arange(6), np.arange(6), np.arange(6, 12), np.arange(6, 12)])
    np.testing.assert_array_equal(site.absorber.entry, expected)


@pytest.mark.parametrize("source", SOURCES)
def test_an_absorbed_scale_changes_no_output(source: str) -> None:
    tensors = tensors_of(source)
    before = logits(source, tensors)
    chance = np.random.default_rng(1)
    found = sites(build(open_checkpoint(source).facts().shape))
    assert all(site.absorber is not None for site in found)
    for site in found:
        assert site.absorber is not None
        entries = np.exp(chance.standard_normal(int(site.absorber.entry.max()) + 1))
        scale = entries[site.absorber.entry].astype(np.float32)
        changed = absorb(tensors.values, site.readers, site.absorber, scale)
        assert changed.keys() == {*site.readers, *site.absorber.tensors}
        tensors.values |= changed
    after = logits(source, tensors)
    np.testing.assert_allclose(after, before, rtol=1e-3, atol=1e-4 * np.abs(before).max())
