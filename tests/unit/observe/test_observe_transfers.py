"""Facts of transfers as counters by wire, way, tier and reason."""

from tercet.messages.effects import Fact
from tercet.observe.metrics import Metrics
from tercet.observe.transfers import FAMILIES, ROWS


def test_every_row_belongs_to_a_family_with_the_same_labels() -> None:
    for rows in ROWS.values():
        for row in rows:
            assert FAMILIES[row.family][1] == row.labels


def test_bytes_are_counted_by_wire_and_plane_and_moves_by_end() -> None:
    metrics = Metrics()
    for wire, end, size in (("shared", "done", 10), ("shared", "stale", 4), ("tcp", "done", 7)):
        labels = (("wire", wire), ("end", end))
        metrics.on_fact(Fact(name="kv.moved", values=(("bytes", float(size)),), labels=labels))
    shown = metrics.transfers()
    assert shown["kv_moved_bytes"] == {"shared/scale_up": 14.0, "tcp/scale_out": 7.0}
    assert shown["kv_moves"] == {"shared/done": 1, "shared/stale": 1, "tcp/done": 1}
    text = metrics.exposition().decode()
    assert 'tercet:kv_moved_bytes_total{plane="scale_out",wire="tcp"} 7.0' in text


def test_reasons_are_labels_or_the_facts_own_name() -> None:
    metrics = Metrics()
    metrics.on_fact(Fact(name="kv.failed", labels=(("reason", "corrupt"), ("peer", "executor/1"))))
    metrics.on_fact(Fact(name="kv.stale", labels=(("peer", "executor/1"),)))
    metrics.on_fact(Fact(name="kv.handover", labels=(("way", "reference"),)))
    assert metrics.transfers() == {
        "kv_handovers": {"reference": 1},
        "kv_handed_over_blocks": {"reference": 0.0},
        "kv_rejected": {"corrupt": 1, "stale": 1},
    }


def test_a_share_of_the_pool_is_what_its_host_said_last() -> None:
    metrics = Metrics()
    for used in (1.0, 3.0):
        fact = Fact(name="pool.share", values=(("values", used), ("dram_used", used)))
        metrics.on_fact(fact, host="b")
    assert metrics.shares() == {"b": {"values": 3.0, "dram_used": 3.0}}
    assert 'tercet:pool_share{host="b",of="dram_used"} 3.0' in metrics.exposition().decode()
