"""Observing inputs, writing texts, and a whole calibration, on the reference device."""

import numpy as np
import pytest

from tercet.devices.reference.device import ReferenceDevice
from tercet.models.sources import open_checkpoint
from tercet.quantization.calibrate import Calibrated, calibrate, cut
from tercet.quantization.config import CalibrationConfig
from tercet.quantization.generation import generate
from tercet.quantization.measure import Yardstick
from tercet.quantization.observation import observe
from tercet.quantization.sites import sites
from tercet.quantization.tensors import Tensors, exact_program, rounded_program

SOURCE = "random:llama?layers=2&hidden=48&heads=4&kv_heads=2&head_dim=12&ffn=72"
SHAPE = open_checkpoint(SOURCE).facts().shape
CONFIG = CalibrationConfig(tokens=192, held_out=64, sequence=32, rows=96)


def tensors(outlier: float = 1.0) -> Tensors:
    """The model's, one channel of the residual stream larger than all others."""
    checkpoint = open_checkpoint(SOURCE)
    values = {name: checkpoint.read(name) for name in checkpoint.tensor_names()}
    values["model.embed_tokens.weight"][:, 7] *= outlier
    return Tensors(values)


def texts(count: int, length: int = 32) -> list[list[int]]:
    return np.random.default_rng(count).integers(0, 256, (count, length)).tolist()


def test_rows_are_kept_evenly_over_all_sequences() -> None:
    program, weights = exact_program(SHAPE, tensors())
    wanted = [site.name for site in sites(program)]
    sequences = [*texts(3), *texts(2, 7)]
    whole = observe(program, weights, sequences, wanted=wanted, rows_max=1000)
    some = observe(program, weights, sequences, wanted=wanted[:3], rows_max=30)
    assert list(whole) == wanted
    assert list(some) == wanted[:3]
    for name, rows in some.items():
        assert len(whole[name]) == 3 * 32 + 2 * 7
        np.testing.assert_allclose(rows, whole[name][::4], rtol=1e-4, atol=1e-5)


def test_a_text_is_written_the_same_way_twice() -> None:
    executable = ReferenceDevice().compile(*exact_program(SHAPE, tensors()))
    seen: list[tuple[int, int]] = []
    one, two = (
        generate(
            executable,
            SHAPE,
            tokens=150,
            length=8,
            advance=lambda done, total: seen.append((done, total)),
        )
        for _ in range(2)
    )
    assert one == two
    assert [len(text) for text in one] == [8] * 18 + [6]
    assert len({tuple(text) for text in one}) == 19
    assert seen[-1] == (150, 150)
    half = seen[: len(seen) // 2]
    assert half == sorted(half)


def test_a_model_is_at_no_distance_from_itself() -> None:
    program, weights = exact_program(SHAPE, tensors())
    yardstick = Yardstick(program, weights, texts(2))
    distance = yardstick.distance(program, weights)
    assert distance.divergence == pytest.approx(0, abs=1e-6)
    assert distance.changed == 0
    assert distance.perplexity == pytest.approx(yardstick.perplexity)
    rounded = yardstick.distance(*rounded_program(SHAPE, tensors(), "int8"))
    assert rounded.divergence > 1e-6


def calibrated(config: CalibrationConfig, outlier: float = 60.0) -> Calibrated:
    stages: list[str] = []
    made = calibrate(
        SHAPE,
        tensors(outlier),
        texts(6),
        held_out=texts(2),
        config=config,
        advance=lambda stage, done, total: stages.append(stage) if done == total else None,
    )
    assert stages[:4] == ["observe", "measure: rounded", "smooth", "measure: scales absorbed"]
    return made


def test_a_calibration_gains_what_an_outlier_costs() -> None:
    made = calibrated(CONFIG)
    names = [step.name for step in made.steps]
    assert names == ["rounded", "scales absorbed", "errors compensated"]
    rounded, absorbed, compensated = made.steps
    assert absorbed.error < rounded.error / 1.5
    assert absorbed.distance.divergence < rounded.distance.divergence
    assert compensated.error < absorbed.error
    assert made.kept == ()
    assert len(made.tensors.integers) == 14
    for codes, scales in made.tensors.integers.values():
        assert codes.dtype == np.int8
        assert scales.shape == codes.shape[:1]
        assert codes.min() >= -127
    in_passes = calibrated(CalibrationConfig(**{**vars(CONFIG), "products_bytes_max": 20_000}))
    for name, (codes, _) in made.tensors.integers.items():
        others = in_passes.tensors.integers[name][0]
        assert (codes != others).mean() < 0.01, "only the order of sums differs"
    assert made.errors["layers.0.normed1"][1] < made.errors["layers.0.normed1"][0]


def test_matrices_that_lose_too_much_stay_as_they_are() -> None:
    made = calibrated(CalibrationConfig(**{**vars(CONFIG), "error_max": 1e-4}))
    assert made.steps[-1].name == "mixed precision"
    assert len(made.kept) == 14
    assert not made.tensors.integers
    assert made.steps[-1].error < made.steps[0].error


@pytest.mark.parametrize("key", ["tokens", "held_out", "sequence", "rows"])
def test_settings_are_checked(key: str) -> None:
    with pytest.raises(ValueError, match=f"{key} is 1, expected at least 2"):
        CalibrationConfig(**{key: 1})


def test_a_text_is_cut_into_sequences() -> None:
    assert list(cut([1, 2, 3, 4, 5, 6, 7], length=3)) == [[1, 2, 3], [4, 5, 6]]
    assert list(cut([1, 2], length=5)) == [[1, 2]]
