"""What lies beside a value on disk, so that it is known again after a restart.

    record  order  key  namespace  unit  size  part  span_start  span_slots  slot_units  check  seal

The order tells which of two labels that name the same place is the later one; the seal is a hash
of the rest, so a label that was half written is none. That the bytes are what the label says is
known only when they are read: their fold must be `check`.
"""

import struct
from collections.abc import Iterator
from hashlib import blake2b

from msgspec import Struct

LABEL_BYTES = 128
_FORM = struct.Struct("<QQ16s16sQQQQQQQ")
_SEAL_BYTES = 8


class Label(Struct, frozen=True, kw_only=True):
    """One value on disk."""

    record: int
    """Where the label itself lies: the disk's list of labels has so many before it."""
    order: int
    key: bytes
    namespace: bytes
    """Digest of its name."""
    unit: int
    """Place of the value, in units."""
    size: int
    part_bytes: int
    span_start: int
    span_slots: int
    slot_units: int
    check: int


def pack(label: Label) -> bytes:
    """Give the label as it lies on disk."""
    body = _FORM.pack(
        label.record,
        label.order,
        label.key,
        label.namespace,
        label.unit,
        label.size,
        label.part_bytes,
        label.span_start,
        label.span_slots,
        label.slot_units,
        label.check,
    )
    return (body + _seal(body)).ljust(LABEL_BYTES, b"\0")


def record_of(packed: bytes) -> int:
    """Give where a packed label goes on disk; all that a driver has to know of it."""
    return int.from_bytes(packed[:8], "little")


def unpack(packed: bytes) -> Label | None:
    """Give the label, or None if it is broken or there never was one."""
    body = packed[: _FORM.size]
    if packed[_FORM.size : _FORM.size + _SEAL_BYTES] != _seal(body):
        return None
    record, order, key, namespace, unit, size, part, start, slots, units, check = _FORM.unpack(body)
    return Label(
        record=record,
        order=order,
        key=key,
        namespace=namespace,
        unit=unit,
        size=size,
        part_bytes=part,
        span_start=start,
        span_slots=slots,
        slot_units=units,
        check=check,
    )


def unpack_all(packed: bytes) -> Iterator[Label]:
    """Give every label that is whole."""
    for at in range(0, len(packed) - LABEL_BYTES + 1, LABEL_BYTES):
        label = unpack(packed[at : at + LABEL_BYTES])
        if label is not None:
            yield label


def _seal(body: bytes) -> bytes:
    return blake2b(body, digest_size=_SEAL_BYTES, person=b"tercet.label").digest()
