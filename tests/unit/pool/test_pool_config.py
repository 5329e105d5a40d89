"""What can be set of a share, and what is refused with a sentence."""

import pytest

from tercet.base.errors import Invalid
from tercet.pool.config import SEGMENT_BYTES_MAX, PoolConfig, Quota

WRONG = {
    "dram_bytes": {"dram_bytes": 100},
    "disk_bytes": {"dram_bytes": 8192, "disk_path": "x", "disk_bytes": -1},
    "disk_path": {"dram_bytes": 8192, "disk_bytes": 4096},
    "value_tokens": {"value_tokens": 100},
    "policy": {"policy": "fifo"},
    "watermark": {"watermark": 0.0},
    "lease_s": {"lease_s": 0.0},
    "moves_max": {"moves_max": 0},
    "quotas": {"quotas": (Quota(namespace="a", dram_bytes=1), Quota(namespace="a", dram_bytes=2))},
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(Invalid) as caught:
        PoolConfig(**WRONG[name])  # type: ignore[arg-type]
    assert caught.value.parameter == name


def test_a_disk_needs_memory() -> None:
    with pytest.raises(Invalid, match="takes memory too"):
        PoolConfig(disk_path="x", disk_bytes=1 << 20)
    with pytest.raises(Invalid):
        Quota(namespace="a", dram_bytes=-1)


def test_segments_cover_the_memory() -> None:
    assert not PoolConfig().on
    assert PoolConfig().segments == ()
    config = PoolConfig(dram_bytes=2 * SEGMENT_BYTES_MAX + 5000)
    assert config.segments == (SEGMENT_BYTES_MAX, SEGMENT_BYTES_MAX, 4096)
