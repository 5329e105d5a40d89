"""Hit rates of the pool's own tier objects on recorded traces: `python -m benchmarks.hit_rates
FOLDER`.

FOLDER holds mooncake_conversation.jsonl.gz and mooncake_synthetic.jsonl.gz (kvcache-ai/Mooncake,
FAST'25: one line a request, `hash_ids` one for each block of 512 tokens). Requests are replayed one
after another; a hit is a block of the leading run that is present; every block is stored. The
reference touches each request's blocks first to last; a share touches them last to first, so that
the beginning of a chain stays longest, and that is what the other columns show.
"""

import gzip
import json
import sys
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from benchmarks.machine import heading
from benchmarks.report import Bar, Table
from tercet.pool.config import UNIT_BYTES
from tercet.pool.index import NONE, Index
from tercet.pool.tiers import Tier

REFERENCE = {
    "conversation": {
        1_000: 4.5,
        5_000: 11.0,
        10_000: 21.1,
        30_000: 32.6,
        50_000: 35.5,
        100_000: 36.4,
    },
    "synthetic": {1_000: 8.3, 5_000: 27.9, 10_000: 42.4, 30_000: 62.4},
}
"""Percent of blocks, LRU, by number of blocks."""
TOLERANCE = 0.1
Trace = list[list[int]]


class Replayed:
    """A tier of so many blocks, and who asks it."""

    def __init__(self, blocks: int, policy: str) -> None:
        self._index = Index()
        self._tier = Tier(
            self._index,
            [blocks * UNIT_BYTES],
            policy=policy,
            watermark=1.0,
            left=self._index.forget,
        )

    def ask(self, keys: Sequence[int], *, backwards: bool) -> int:
        """Give the length of the leading run, then use or store all."""
        find = self._index.find
        run = 0
        while run < len(keys) and find(keys[run], keys[run]) != NONE:
            run += 1
        for key in reversed(keys) if backwards else keys:
            entry = find(key, key)
            if entry != NONE:
                self._tier.use(entry, 0)
            else:
                self._store(key)
        return run

    def _store(self, key: int) -> None:
        place = self._tier.reserve(UNIT_BYTES, 0, key)
        if place is not None:
            entry = self._index.add(key, key)
            self._index.size[entry] = UNIT_BYTES
            self._tier.commit(entry, place, 0)


def read_trace(path: Path) -> Trace:
    """Give the keys of each request: ids as the hashes that they stand for."""
    words: dict[int, int] = {}
    trace: Trace = []
    with gzip.open(path, "rt") as lines:
        for line in lines:
            ids = json.loads(line)["hash_ids"]
            for number in ids:
                if number not in words:
                    digest = blake2b(b"%d" % number, digest_size=8).digest()
                    words[number] = int.from_bytes(digest, "little")
            trace.append([words[number] for number in ids])
    return trace


def hit_rate(trace: Trace, blocks: int, policy: str, *, backwards: bool) -> float:
    """Percent of all blocks that were hits."""
    tier = Replayed(blocks, policy)
    hits = sum(tier.ask(keys, backwards=backwards) for keys in trace)
    return 100 * hits / sum(map(len, trace))


def best_possible(trace: Trace, blocks: int) -> float:
    """Percent that a policy which knows the future would have (Belady: the next use furthest)."""
    import heapq

    flat = [key for keys in trace for key in keys]
    following, after = {}, [0] * len(flat)
    for at in range(len(flat) - 1, -1, -1):
        after[at] = following.get(flat[at], len(flat) + at)
        following[flat[at]] = at
    there: dict[int, int] = {}
    heap: list[tuple[int, int]] = []
    hits = at = 0
    for keys in trace:
        run = 0
        while run < len(keys) and keys[run] in there:
            run += 1
        hits += run
        for key in keys:
            there[key] = after[at]
            heapq.heappush(heap, (-after[at], key))
            at += 1
            while len(there) > blocks:
                use, oldest = heapq.heappop(heap)
                if there.get(oldest) == -use:
                    del there[oldest]
    return 100 * hits / len(flat)


def measure(folder: Path) -> Table:
    """Replay both traces at the sizes of the reference."""
    rows: list[tuple[str | float, ...]] = []
    bars: list[Bar] = []
    for name, sizes in REFERENCE.items():
        trace = read_trace(folder / f"mooncake_{name}.jsonl.gz")
        for blocks, reference in sizes.items():
            lru = hit_rate(trace, blocks, "lru", backwards=False)
            rows.append(
                (
                    name,
                    blocks,
                    f"{reference:.1f}",
                    f"{lru:.1f}",
                    f"{hit_rate(trace, blocks, 'lru', backwards=True):.1f}",
                    f"{hit_rate(trace, blocks, 'adaptive', backwards=True):.1f}",
                    f"{best_possible(trace, blocks):.1f}",
                )
            )
            bars.append(
                Bar(
                    what=f"{name}, {blocks:,} blocks: distance from the reference",
                    value=abs(round(lru, 1) - reference),
                    bound=TOLERANCE + 1e-6,
                    unit="points",
                )
            )
    columns = ("trace", "blocks", "reference", "lru", "lru, chains", "adaptive", "best possible")
    return Table(
        title="Hit rates (percent of blocks)",
        command="python -m benchmarks.hit_rates FOLDER",
        columns=columns,
        rows=rows,
        bars=bars,
    )


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("python -m benchmarks.hit_rates FOLDER   (of the Mooncake traces)")
    table = measure(Path(sys.argv[1]))
    print("\n".join([*heading(), "", *table.lines()]))
    if not all(bar.holds for bar in table.bars):
        sys.exit(1)


if __name__ == "__main__":
    main()
