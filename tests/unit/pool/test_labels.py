"""Labels of values on disk: what was written is read, and what is broken is none."""

from hypothesis import given
from hypothesis import strategies as st

from tercet.pool.disk import HEAD, KIND, DiskLayout
from tercet.pool.labels import LABEL_BYTES, Label, pack, record_of, unpack, unpack_all

WORD = st.integers(0, (1 << 64) - 1)
LABELS = st.builds(
    Label,
    record=WORD,
    order=WORD,
    key=st.binary(min_size=16, max_size=16),
    namespace=st.binary(min_size=16, max_size=16),
    unit=WORD,
    size=WORD,
    part_bytes=WORD,
    span_start=WORD,
    span_slots=WORD,
    slot_units=WORD,
    check=WORD,
)


@given(LABELS)
def test_it_comes_back(label: Label) -> None:
    packed = pack(label)
    assert len(packed) == LABEL_BYTES
    assert unpack(packed) == label
    assert record_of(packed) == label.record


@given(LABELS, st.integers(0, 119), st.integers(1, 255))
def test_a_broken_one_is_none(label: Label, at: int, flip: int) -> None:
    packed = bytearray(pack(label))
    packed[at] ^= flip
    assert unpack(bytes(packed)) in (None, label)
    assert unpack(bytes(packed)) is None or at >= 112


def test_a_disk_without_labels_has_none() -> None:
    assert list(unpack_all(bytes(LABEL_BYTES * 3 + 5))) == []


@given(st.integers(1 << 16, 1 << 45))
def test_labels_and_values_have_room(size: int) -> None:
    layout = DiskLayout.of(size)
    assert layout.record_at(layout.num_records) <= layout.label_bytes
    assert layout.data_at % 4096 == 0
    assert min(layout.data_at, layout.labels_at) >= len(HEAD)
    assert HEAD.startswith(KIND)
    assert layout.data_end + layout.label_bytes <= size
    assert layout.data_bytes > 0.9 * size - 3 * 4096  # heads of both files, and a rest
