"""How the two files of a share on disk are laid out.

    [ head 4 KiB | values, in units of 4 KiB ]      [ head 4 KiB | labels, 128 bytes each ]

There is one label for each 32 KiB of disk, so short values may run out of labels before they run
out of room: then the oldest go sooner.
"""

from msgspec import Struct

from tercet.pool.config import UNIT_BYTES
from tercet.pool.labels import LABEL_BYTES

BYTES_PER_LABEL = 32 << 10
KIND = b"tercet pool "
"""How the heads of all versions begin."""
HEAD = KIND + b"3\n"


class DiskLayout(Struct, frozen=True, kw_only=True):
    """Byte positions: of labels in their file, of values in the other. Both have a head."""

    num_records: int
    labels_at: int
    label_bytes: int
    """The size of that file."""
    data_at: int
    data_bytes: int
    unit_bytes: int = UNIT_BYTES

    @staticmethod
    def of(disk_bytes: int) -> "DiskLayout":
        """Give the layout of files of this size together."""
        num_records = max(disk_bytes // BYTES_PER_LABEL, UNIT_BYTES // LABEL_BYTES)
        label_bytes = UNIT_BYTES - (-num_records * LABEL_BYTES // UNIT_BYTES) * UNIT_BYTES
        room = disk_bytes - UNIT_BYTES - label_bytes
        return DiskLayout(
            num_records=num_records,
            labels_at=UNIT_BYTES,
            label_bytes=label_bytes,
            data_at=UNIT_BYTES,
            data_bytes=max(room, 0) // UNIT_BYTES * UNIT_BYTES,
        )

    @property
    def data_end(self) -> int:
        return self.data_at + self.data_bytes

    def record_at(self, record: int) -> int:
        """Give where a label lies."""
        return self.labels_at + record * LABEL_BYTES

    def unit_at(self, unit: int) -> int:
        """Give where a value lies."""
        return self.data_at + unit * UNIT_BYTES
