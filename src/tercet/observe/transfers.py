"""What moves between executors, hosts and the pool, counted by wire, way, tier and reason."""

from collections.abc import Mapping
from dataclasses import dataclass

from tercet.messages.effects import Fact
from tercet.observe.instruments import Counts


@dataclass(frozen=True)
class Row:
    """How one fact counts for one family."""

    family: str
    labels: tuple[str, ...]
    """Of the fact; `plane` follows from its wire, `reason` may be the fact's own name."""
    value: str = ""
    """Which number of the fact is added; empty: one for each fact."""


FAMILIES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "kv_moved_bytes": ("Bytes that were copied, by wire.", ("wire", "plane")),
    "kv_moves": ("Copies, by how they ended.", ("wire", "end")),
    "kv_handovers": ("Prefills that reached who decodes.", ("way",)),
    "kv_handed_over_blocks": ("Blocks of those prefills.", ("way",)),
    "kv_lent_blocks": ("Blocks that were lent to others.", ("way",)),
    "kv_leases_ended": ("Leases that ended otherwise than by their return.", ("reason",)),
    "kv_rejected": ("Blocks of others that were not used, by reason.", ("reason",)),
    "pool_hits": ("Values that the pool had, by tier.", ("tier",)),
    "pool_offered": ("Values that executors offered to the pool.", ()),
    "pool_stored": ("Those that are stored now.", ()),
    "pool_not_stored": ("Values that a host did not take, by reason.", ("why",)),
    "pool_corrupt": ("Values that were dropped because they did not verify.", ("tier",)),
}
"""Name under `tercet:`: what it tells, and its labels."""

ROWS: Mapping[str, tuple[Row, ...]] = {
    "kv.moved": (
        Row("kv_moved_bytes", ("wire", "plane"), "bytes"),
        Row("kv_moves", ("wire", "end")),
    ),
    "kv.handover": (
        Row("kv_handovers", ("way",)),
        Row("kv_handed_over_blocks", ("way",), "blocks"),
    ),
    "kv.lent": (Row("kv_lent_blocks", ("way",), "blocks"),),
    "kv.lease_ended": (Row("kv_leases_ended", ("reason",)),),
    "kv.failed": (Row("kv_rejected", ("reason",)),),
    "kv.refused": (Row("kv_rejected", ("reason",)),),
    "kv.stale": (Row("kv_rejected", ("reason",)),),
    "pool.hits": (Row("pool_hits", ("tier",), "values"),),
    "pool.offered": (Row("pool_offered", (), "offered"), Row("pool_stored", (), "stored")),
    "pool.not_stored": (Row("pool_not_stored", ("why",)),),
    "pool.corrupt": (Row("pool_corrupt", ("tier",)),),
}
"""Name of a fact: what it counts for."""

PLANES: Mapping[str, str] = {
    "memory": "scale_up",
    "shared": "scale_up",
    "tcp": "scale_out",
    "disk": "storage",
}


SHARE = "pool.share"
"""The fact by which an agent says now and then how full its share of the pool is."""


class TransferCounts:
    """Counters of every family."""

    def __init__(self) -> None:
        self.shares: dict[str, dict[str, float]] = {}
        """What each host last said of its share."""
        self.families = {name: Counts() for name in FAMILIES}

    def on_fact(self, fact: Fact) -> None:
        """Count a fact, if it tells of a transfer."""
        rows = ROWS.get(fact.name)
        if rows is None:
            return
        labels = dict(fact.labels)
        labels.setdefault("plane", PLANES.get(labels.get("wire", ""), "other"))
        labels.setdefault("reason", fact.name.partition(".")[2])
        values = dict(fact.values)
        for row in rows:
            named = tuple(labels.get(name, "") for name in row.labels)
            self.families[row.family].add(named, values.get(row.value, 0.0) if row.value else 1)

    def standing(self, fact: Fact, host: str) -> None:
        """Take note of how full a host's share is, in place of what it said before."""
        self.shares[host] = dict(fact.values)

    def picture(self) -> dict[str, dict[str, float]]:
        """Give every counter that is not zero: family -> label values -> number."""
        return {
            name: {"/".join(labels): value for labels, value in counts.values.items()}
            for name, counts in self.families.items()
            if counts.values
        }
