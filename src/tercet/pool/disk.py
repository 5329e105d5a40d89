"""How the file of a share on disk is laid out.

    [ head 4 KiB | labels, 128 bytes each | values, in units of 4 KiB ]

There is one label for each 32 KiB of the file, so short values may run out of labels before they
run out of room: then the oldest go sooner.
"""

from msgspec import Struct

from tercet.pool.config import UNIT_BYTES
from tercet.pool.labels import LABEL_BYTES

BYTES_PER_LABEL = 32 << 10
HEAD = b"tercet pool 1\n"


class DiskLayout(Struct, frozen=True, kw_only=True):
    """Byte positions in the file."""

    num_records: int
    labels_at: int
    data_at: int
    data_bytes: int
    unit_bytes: int = UNIT_BYTES

    @staticmethod
    def of(disk_bytes: int) -> "DiskLayout":
        """Give the layout of a file of this size."""
        num_records = max(disk_bytes // BYTES_PER_LABEL, UNIT_BYTES // LABEL_BYTES)
        label_bytes = -(-num_records * LABEL_BYTES // UNIT_BYTES) * UNIT_BYTES
        data_at = UNIT_BYTES + label_bytes
        return DiskLayout(
            num_records=num_records,
            labels_at=UNIT_BYTES,
            data_at=data_at,
            data_bytes=max(disk_bytes - data_at, 0) // UNIT_BYTES * UNIT_BYTES,
        )

    def record_at(self, record: int) -> int:
        """Give where a label lies."""
        return self.labels_at + record * LABEL_BYTES

    def unit_at(self, unit: int) -> int:
        """Give where a value lies."""
        return self.data_at + unit * UNIT_BYTES
