"""One safetensors file: what is read, and every way in which a file can lie."""

import json
from contextlib import suppress
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from tercet.base.errors import Invalid
from tercet.models.checkpoints.safetensors_file import open_safetensors

VALUES = np.array([[1.5, -2.25, 0.0], [3.140625, 1e-3, 65504.0]], np.float32)


def write(path: Path, header: object, data: bytes = b"", *, length: int | None = None) -> Path:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(encoded) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + encoded + data)
    return path


def entry(start: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_reads_every_float_type_as_float32(tmp_path: Path, dtype: type) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"b": np.ones(3, np.float32), "a": VALUES.astype(dtype)}, path)
    file = open_safetensors(path)
    assert file.describe("a").shape == (2, 3)
    array = file.read("a")
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, VALUES.astype(dtype).astype(np.float32))
    array[0, 0] = 7  # the caller's to keep


def test_reads_empty_and_scalar_tensors(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"none": np.ones((0, 4), np.float32), "one": np.full((), 3, np.float32)}, path)
    file = open_safetensors(path)
    assert file.read("none").shape == (0, 4)
    assert file.read("one").shape == ()


@pytest.mark.parametrize("dtype", ["I8", "F8_E4M3", "U32", "WHAT"])
def test_other_types_are_refused_with_file_and_tensor(tmp_path: Path, dtype: str) -> None:
    size = 4 if dtype == "U32" else 1
    path = write(tmp_path / "a.safetensors", {"w": entry(0, size, [1], dtype)}, b"\0" * size)
    with pytest.raises(Invalid, match=rf"a\.safetensors holds tensor 'w' as {dtype}; served are"):
        open_safetensors(path).read("w")


@pytest.mark.parametrize("cut", [1, 12, 24 + 11, 10_000])
def test_a_truncated_file_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"first": VALUES, "second": VALUES}, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    with pytest.raises(Invalid, match=r"a\.safetensors is (truncated|no safetensors)") as caught:
        open_safetensors(path)
    if cut < 24:
        assert "tensor 'second'" in caught.value.sentence
    elif cut < 48:
        assert "tensor 'first'" in caught.value.sentence or "'second'" in caught.value.sentence


def test_a_file_cut_after_it_was_opened_is_an_error_and_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"w": VALUES}, path)
    file = open_safetensors(path)
    with path.open("r+b") as opened:
        opened.truncate(path.stat().st_size - 4)
    with pytest.raises(Invalid, match="truncated: tensor 'w' should have 24 bytes"):
        file.read("w")


@pytest.mark.parametrize(
    ("header", "data", "said"),
    [
        ({"w": entry(0, 8, [2]), "v": entry(4, 12, [2])}, 12, "tensor 'v' lies at bytes 4 to 12"),
        ({"w": entry(0, 8, [2]), "v": entry(12, 20, [2])}, 20, "expected from 8"),
        ({"w": entry(0, 8, [2])}, 12, "4 bytes belong to no tensor"),
        ({"w": entry(0, 8, [3])}, 8, r"tensor 'w' has shape \[3\] of F32 in 8 bytes"),
        ({"w": entry(0, 8, [-1, -2])}, 8, r"tensor 'w' the shape \[-1, -2\]"),
        ({"w": entry(0, 1 << 60, [1 << 58])}, 8, "tensor 'w' ends at byte 1152921504606846976"),
        ({"w": entry(8, 0, [0])}, 8, "tensor 'w' lies at bytes 8 to 0"),
        ({"w": {"dtype": "F32", "shape": [1]}}, 4, "its header is not valid"),
        ({"w": entry(0, 4, [1.5])}, 4, "its header is not valid"),  # type: ignore[list-item]
        (["w"], 4, "its header is not valid"),
        (b"{" * 1000, 4, "its header is not valid"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 0, "its header is not valid"),
        (b"\xff\xfe{}", 4, "its header is not valid"),
    ],
)
def test_a_lying_header_is_refused(tmp_path: Path, header: object, data: int, said: str) -> None:
    path = write(tmp_path / "a.safetensors", header, b"\0" * data)
    with pytest.raises(Invalid, match=said) as caught:
        open_safetensors(path)
    assert caught.value.sentence.startswith(str(path))


@pytest.mark.parametrize("length", [1 << 63, 100_000_001, 5000])
def test_a_huge_header_length_allocates_nothing(tmp_path: Path, length: int) -> None:
    path = write(tmp_path / "a.safetensors", {}, length=length)
    with pytest.raises(Invalid, match=r"a header of|truncated"):
        open_safetensors(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    import os

    with pytest.raises(Invalid, match="does not exist"):
        open_safetensors(tmp_path / "none")
    with pytest.raises(Invalid, match="is no regular file"):
        open_safetensors(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Invalid, match="is no regular file"):
        open_safetensors(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    with pytest.raises(Invalid, match="it has 0 bytes"):
        open_safetensors(tmp_path / "empty")


@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
@given(
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=3),
    cut=st.one_of(st.just(1.0), st.floats(0, 1)),
)
def test_any_damage_is_refused_or_harmless(
    tmp_path: Path, changes: list[tuple[float, int]], cut: float
) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"first": VALUES, "second": VALUES.astype(np.float16)}, path)
    damaged = bytearray(path.read_bytes())
    for place, value in changes:
        damaged[int(place * (len(damaged) - 1))] = value
    path.write_bytes(damaged[: int(cut * len(damaged))])
    with suppress(Invalid):
        file = open_safetensors(path)
        for name in file.entries:
            assert file.read(name).dtype == np.float32
