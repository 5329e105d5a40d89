"""The header of a GGUF file, compared with the reader of the `gguf` package, and damaged."""

import struct
from contextlib import suppress
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_models import write_gguf

from tercet.base.errors import Invalid
from tercet.models.checkpoints.gguf_file import open_gguf
from tercet.models.checkpoints.gguf_header import WINDOW_BYTES, read_header


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def start(num_tensors: int = 0, num_pairs: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_pairs)


def test_metadata_and_tensors_are_those_that_the_package_reads(tmp_path: Path) -> None:
    def also(writer: gguf.GGUFWriter) -> None:
        writer.add_array("a.floats", [0.5, 1.5])
        writer.add_array("a.flags", [True, False])
        writer.add_int64("a.long", -(1 << 40))
        writer.add_float64("a.double", 0.1)
        writer.add_string("a.text", "ä\n🙂")

    path = write_gguf(tmp_path / "a.gguf", also=also)
    header = read_header(path)
    reader = gguf.GGUFReader(path)
    fields = {name: field for name, field in reader.fields.items() if name[:5] != "GGUF."}
    assert list(header.metadata) == list(fields)
    for name, field in fields.items():
        assert header.metadata[name] == field.contents(), name
    assert [t.name for t in header.tensors] == [t.name for t in reader.tensors]
    places = [header.data_start + t.offset for t in header.tensors]
    assert places == [t.data_offset for t in reader.tensors]
    assert [list(t.dims) for t in header.tensors] == [t.shape.tolist() for t in reader.tensors]


def test_a_header_longer_than_what_is_read_at_first(tmp_path: Path) -> None:
    long = ["x" * (1 << 20)] * (1 + WINDOW_BYTES >> 20) + ["ä", "🙂"]

    def also(writer: gguf.GGUFWriter) -> None:
        writer.add_array("a.long", long)
        writer.add_string("a.behind", "é")

    header = read_header(write_gguf(tmp_path / "a.gguf", also=also))
    assert header.metadata["a.long"] == long
    assert header.metadata["a.behind"] == "é"


HUGE = (1 << 62) + 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it has 0 bytes"),
        (b"GGUF", "it has 4 bytes"),
        (b"PK\3\4" + b"\0" * 100, "does not begin with GGUF"),
        (start(version=1), "version 1 GGUF"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian GGUF"),
        (start(num_pairs=HUGE), "truncated"),
        (start(num_tensors=HUGE), "truncated"),
        (start(num_pairs=1) + struct.pack("<Q", HUGE), "a key of the metadata has"),
        (start(num_pairs=1) + text("k") + struct.pack("<I", 99), "'k' has the unknown type 99"),
        (start(num_pairs=1) + text("k") + struct.pack("<IQ", 8, HUGE), "truncated: the metadata"),
        (start(num_pairs=1) + text("k") + struct.pack("<IIQ", 9, 0, HUGE), "has 46116860184"),
        (start(num_pairs=1) + text("k") + struct.pack("<IIQ", 9, 5, 1 << 20), "truncated"),
        (
            start(num_pairs=1) + text("k") + struct.pack("<IIQ", 9, 8, 1 << 20),
            "truncated: the metadata",
        ),
        (start(num_pairs=1) + text("k") + struct.pack("<IIQIQ", 9, 9, 1, 9, 1), "arrays of arrays"),
        (start(num_pairs=1) + struct.pack("<Q", 1) + b"\xff" + b"\0" * 8, "is not UTF-8"),
        (start(num_pairs=2) + (text("k") + struct.pack("<IB", 0, 1)) * 2, "'k' twice"),
        (start(num_tensors=1) + text("w") + struct.pack("<I", 1 << 31), "2147483648 dimensions"),
        (start(num_tensors=1) + text("w") + struct.pack("<I", 0), "0 dimensions"),
        (
            start(num_tensors=2) + (text("w") + struct.pack("<IQIQ", 1, 1, 0, 0)) * 2,
            "holds tensor 'w' twice",
        ),
        (
            start(num_pairs=1) + text("general.alignment") + struct.pack("<II", 4, 0),
            "general.alignment is 0",
        ),
    ],
)
def test_a_lying_header_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(content)
    with pytest.raises(Invalid, match=said) as caught:
        read_header(path)
    assert caught.value.sentence.startswith(str(path))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "a.gguf")


@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
@given(
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=3),
    cut=st.one_of(st.just(1.0), st.floats(0, 1)),
)
def test_any_damage_is_refused_or_harmless(
    tmp_path: Path, whole: Path, changes: list[tuple[float, int]], cut: float
) -> None:
    """Cut anywhere or with a few bytes changed in the header: `Invalid`, or a checkpoint."""
    path = tmp_path / "a.gguf"
    header_size = read_header(whole).data_start
    damaged = bytearray(whole.read_bytes())
    for place, value in changes:
        damaged[int(place * (header_size - 1))] = value
    path.write_bytes(damaged[: int(cut * len(damaged))])
    with suppress(Invalid):
        checkpoint = open_gguf(path)
        for name in checkpoint.tensor_names():
            assert checkpoint.read(name).dtype == np.float32
