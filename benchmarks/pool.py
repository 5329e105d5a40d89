"""The pool beside plain copies, plain disk reads, files and LMDB, in one run:
`python -m benchmarks.pool [--folder ON_A_DISK] [--peers FOLDER_WITH_LMDB] [--keys 10000000]`.

The node agent's machine and the wires are the real ones. In memory every contender is one thread;
on the disk each has two for its input and output, as the agent's mover has. A value is the KV of
128 tokens of a model with 32 layers (3 MiB in parts of 12 KiB), and lies in an arena before it is
put and after it is got. The pool sums every part when it comes, when it goes to the disk, when it
comes back, and when it is read; nobody else does. Plain reads and writes are of the same kind of
memory as the arenas (shared, of small pages), and of private memory of huge pages.
"""

import importlib.util
import mmap
import os
import queue
import shutil
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.machine import heading
from benchmarks.report import Bar, Table, middle
from tercet.base.ids import Address, Epoch
from tercet.messages.effects import Move, Send
from tercet.messages.events import Moved, MoveEnd, NodeAgentEvent, Received, SlabScanned
from tercet.messages.kv import (
    PoolDone,
    PoolFind,
    PoolFound,
    PoolPut,
    PoolReady,
    PoolStored,
    PoolValue,
    PoolWant,
    Strip,
)
from tercet.messages.wire import Message
from tercet.node_agent.config import NodeAgentConfig
from tercet.node_agent.machine import NodeAgent
from tercet.pool.config import PoolConfig
from tercet.pool.disk import HEAD, DiskLayout
from tercet.pool.index import NONE, Index
from tercet.pool.labels import record_of
from tercet.pool.namespaces import Namespaces
from tercet.pool.tiers import Tier
from tercet.runtime import mover
from tercet.wires.contract import Done, Region, WireFailure
from tercet.wires.disk import DiskWire
from tercet.wires.regions import Regions
from tercet.wires.shared import SharedWire
from tercet.wires.slab import Slab
from tercet.wires.sums import fold_of

PART, BLOCK, BLOCKS_EACH = 12 << 10, 384 << 10, 8
VALUE = BLOCK * BLOCKS_EACH
VALUES = 64
BATCH = 32
"""Values of a prompt of 4,096 tokens."""
ROUNDS = 5
EXECUTOR = Address("executor/0")
PLAIN, HUGE = "plain O_DIRECT", "plain O_DIRECT, huge pages"
THREADS = ThreadPoolExecutor(2)
DISK_THREADS = ThreadPoolExecutor(mover.DISK_THREADS)
ORDER = np.random.default_rng(1).permutation(VALUES).tolist()
KEYS = [blake2b(b"%d" % number, digest_size=16).digest() for number in range(VALUES)]


class Memory:
    """A mapping of so many bytes; of huge pages it is private, for so the system gives them."""

    def __init__(self, size: int, *, filled: bool = False, huge: bool = False) -> None:
        if huge:
            self.page = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self.page.madvise(mmap.MADV_HUGEPAGE)
        else:
            self.page = mmap.mmap(-1, size)
        self.bytes = np.frombuffer(self.page, np.uint8)
        self.bytes[:] = 0
        if filled:
            self.bytes[:] = np.frombuffer(np.random.default_rng(2).bytes(size), np.uint8)

    @property
    def address(self) -> int:
        return int(self.bytes.ctypes.data)

    def value(self, number: int) -> "np.ndarray[Any, np.dtype[np.uint8]]":
        return self.bytes[number * VALUE : (number + 1) * VALUE]


class Bench:
    """An agent and an executor, and what carries between them."""

    def __init__(
        self, source: Memory, target: Memory, config: PoolConfig, *, threaded: bool = False
    ) -> None:
        self._threaded = threaded
        self._ends: queue.SimpleQueue[tuple[int, MoveEnd]] = queue.SimpleQueue()
        self._under_way = 0
        self._fetches: list[Future[Done]] = []
        self._segment = Memory(config.dram_bytes)
        named = (("kv/0", source), ("kv/1", target), ("dram/0", self._segment))
        self._regions = Regions(
            tuple(
                Region(memory=f"a/{name}", address=one.address, size=len(one.page), writable=True)
                for name, one in named
            )
        )
        self._shared = SharedWire(self._regions)
        self._disk: DiskWire | None = None
        self._agent = NodeAgent(NodeAgentConfig(), address=Address("agent/a"), pool=config)
        self._moves: list[Move] = []
        self._wanted: list[int] = []
        self._said: list[Message] = []
        self._asks = 0
        self.checks = [
            fold_of(source.address, arena_strip("a/kv/0", number), PART) for number in range(VALUES)
        ]
        if config.disk_path is not None:
            layout = DiskLayout.of(config.disk_bytes)
            path, notes = Path(config.disk_path), layout.label_bytes
            slab = Slab(path, layout.data_end, head=HEAD, notes_size=notes)
            self._disk = DiskWire(
                self._regions, "a/disk/0", slab, lambda label: layout.record_at(record_of(label))
            )
        self._on(SlabScanned(memory="a/disk/0", labels=b"", last=True))

    def put(self, numbers: list[int]) -> None:
        """Store these values, on disk too if there is one."""
        self._asks += 1
        put = PoolPut(
            put=self._asks,
            namespace="n",
            keys=b"".join(KEYS[number] for number in numbers),
            values=tuple(
                PoolValue(source=arena_strip("a/kv/0", number), check=self.checks[number])
                for number in numbers
            ),
            part_bytes=PART,
            reply=EXECUTOR,
        )
        stored = self._ask(put, PoolStored)
        if stored.stored != len(numbers):
            raise RuntimeError(f"{stored.stored} of {len(numbers)} values were stored")

    def get(self, numbers: list[int]) -> None:
        """Find, hold, copy and verify these values."""
        self._asks += 1
        keys = b"".join(KEYS[number] for number in numbers)
        found = self._ask(
            PoolFind(ask=self._asks, namespace="n", keys=keys, reply=EXECUTOR), PoolFound
        )
        if len(found.tiers) != len(numbers):
            raise RuntimeError(f"{len(found.tiers)} of {len(numbers)} values were found")
        self._wanted = numbers
        self._tell(PoolWant(ask=self._asks, count=len(numbers)))
        for fetch in self._fetches:
            fetch.result()
        self._fetches.clear()
        self._tell(PoolDone(ask=self._asks))

    def _ready(self, ready: PoolReady) -> None:
        """Fetch what can be read now, while more is brought."""
        for place, value in enumerate(ready.values, ready.first):
            if value is None:
                raise RuntimeError("a value that was found is gone")
            move = Move(
                ticket=0,
                source=value.source,
                target=arena_strip("a/kv/1", self._wanted[place]),
                part_bytes=PART,
                check=value.check,
            )
            if self._threaded:
                self._fetches.append(THREADS.submit(self._shared.carry, move))
            else:
                self._shared.carry(move)

    def _ask(self, message: Message, answer: type[Any]) -> Any:
        self._said.clear()
        self._tell(message)
        return next(said for said in self._said if isinstance(said, answer))

    def _tell(self, message: Message) -> None:
        self._on(Received(sender=EXECUTOR, epoch=Epoch(1), message=message))

    def _on(self, event: NodeAgentEvent) -> None:
        """And all that follows from it."""
        self._turn(event)
        while self._moves or self._under_way:
            for move in self._moves:
                self._under_way += 1
                if self._threaded:
                    on_disk = self._disk is not None and self._disk.reaches(move)
                    (DISK_THREADS if on_disk else THREADS).submit(self._carry, move)
                else:
                    self._carry(move)
            self._moves.clear()
            ticket, end = self._ends.get()
            self._under_way -= 1
            self._turn(Moved(ticket=ticket, end=end))

    def _carry(self, move: Move) -> None:
        wire = self._disk if self._disk and self._disk.reaches(move) else self._shared
        try:
            wire.carry(move)
            self._ends.put((move.ticket, MoveEnd.DONE))
        except WireFailure as failure:
            self._ends.put((move.ticket, failure.end))

    def _turn(self, event: NodeAgentEvent) -> None:
        for effect in self._agent.on(event, time.monotonic_ns()):
            match effect:
                case Send(message=PoolReady() as ready):
                    self._ready(ready)
                case Send(message=message):
                    self._said.append(message)
                case Move():
                    self._moves.append(effect)
                case _:
                    pass


def spread(work: Callable[[int], None], numbers: list[int], *, threaded: bool) -> None:
    """One value after another, or by as many threads as the mover has for disks."""
    list(DISK_THREADS.map(work, numbers) if threaded else map(work, numbers))


def arena_strip(memory: str, number: int) -> Strip:
    """The blocks of a value in an arena, not side by side."""
    blocks = [number + VALUES * place for place in range(BLOCKS_EACH)]
    units = array("i", blocks).tobytes()
    return Strip(memory=memory, start=0, stride=BLOCK, length=BLOCK, units=units)


def gigabytes_per_s(work: Callable[[list[int]], None], numbers: Iterable[list[int]]) -> float:
    """Of work on batches of values."""
    began = time.perf_counter()
    count = 0
    for batch in numbers:
        work(batch)
        count += len(batch)
    return count * VALUE / (time.perf_counter() - began) / 1e9


def batches() -> list[list[int]]:
    return [ORDER[at : at + BATCH] for at in range(0, VALUES, BATCH)]


class Files:
    """A file for each block, as many caches do."""

    def __init__(self, folder: Path, source: Memory, target: Memory, *, through: bool) -> None:
        self._folder, self._source, self._target, self._through = folder, source, target, through
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, numbers: list[int]) -> None:
        spread(self._put, numbers, threaded=self._through)

    def get(self, numbers: list[int]) -> None:
        spread(self._get, numbers, threaded=self._through)

    def _put(self, number: int) -> None:
        for block in range(BLOCKS_EACH):
            part = self._source.value(number)[block * BLOCK : (block + 1) * BLOCK]
            descriptor = os.open(self._path(number, block), os.O_CREAT | os.O_WRONLY, 0o600)
            os.write(descriptor, memoryview(part))
            if self._through:
                os.fsync(descriptor)
            os.close(descriptor)

    def _get(self, number: int) -> None:
        for block in range(BLOCKS_EACH):
            part = self._target.value(number)[block * BLOCK : (block + 1) * BLOCK]
            descriptor = os.open(self._path(number, block), os.O_RDONLY)
            os.readv(descriptor, [memoryview(part)])
            os.close(descriptor)

    def cool(self) -> None:
        """Nothing of it is in the page cache any more."""
        for path in self._folder.iterdir():
            _uncache(path)

    def _path(self, number: int, block: int) -> Path:
        return self._folder / f"{KEYS[number].hex()}-{block}"


class Lmdb:
    """LMDB, one transaction a batch."""

    def __init__(self, folder: Path, source: Memory, target: Memory, *, through: bool) -> None:
        self._source, self._target, self._through = source, target, through
        self._file = folder / "data.mdb"
        folder.mkdir(parents=True, exist_ok=True)
        self._lmdb = importlib.import_module("lmdb")
        self._open = lambda: self._lmdb.open(
            str(folder), map_size=4 * VALUES * VALUE, sync=through, metasync=through
        )
        self._env = self._open()

    def put(self, numbers: list[int]) -> None:
        with self._env.begin(write=True) as transaction:
            for number in numbers:
                transaction.put(KEYS[number], memoryview(self._source.value(number)))

    def get(self, numbers: list[int]) -> None:
        spread(self._get, numbers, threaded=self._through)

    def _get(self, number: int) -> None:
        with self._env.begin(buffers=True) as transaction:
            found = transaction.get(KEYS[number])
            self._target.value(number)[:] = np.frombuffer(found, np.uint8)

    def cool(self) -> None:
        self._env.close()
        _uncache(self._file)
        self._env = self._open()


class Direct:
    """The disk itself: each value in one O_DIRECT call (of 4 MiB at most, as the slab's)."""

    def __init__(self, path: Path, source: Memory, target: Memory) -> None:
        self._source, self._target = source, target
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600)
        os.posix_fallocate(self._file, 0, VALUES * VALUE)

    def put(self, numbers: list[int]) -> None:
        spread(self._put, numbers, threaded=True)

    def get(self, numbers: list[int]) -> None:
        spread(self._get, numbers, threaded=True)

    def _put(self, number: int) -> None:
        os.pwritev(self._file, [memoryview(self._source.value(number))], number * VALUE)

    def _get(self, number: int) -> None:
        os.preadv(self._file, [memoryview(self._target.value(number))], number * VALUE)

    def cool(self) -> None:
        """It never was in the page cache."""


def _uncache(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def in_memory(source: Memory, target: Memory) -> Table:
    """DRAM: all contenders keep their values in memory (files and LMDB in a tmpfs)."""
    folder = Path(tempfile.mkdtemp(prefix="tercet-pool-", dir="/dev/shm"))
    found: dict[str, tuple[list[float], list[float]]] = {}

    def keep(name: str, put: float, get: float) -> None:
        puts, gets = found.setdefault(name, ([], []))
        puts.append(put)
        gets.append(get)

    def copies(numbers: list[int]) -> None:
        for number in numbers:
            np.copyto(target.value(number), source.value(number))

    try:
        for number in range(ROUNDS):
            copied = gigabytes_per_s(copies, batches())
            keep("plain copy", copied, gigabytes_per_s(copies, batches()))
            bench = Bench(source, target, PoolConfig(dram_bytes=(VALUES + 8) * VALUE))
            put = gigabytes_per_s(bench.put, batches())
            keep("pool", put, gigabytes_per_s(bench.get, batches()))
            for name, make in contenders():
                one = make(folder / f"{name}-{number}", source, target, through=False)
                put = gigabytes_per_s(one.put, batches())
                keep(name, put, gigabytes_per_s(one.get, batches()))
                shutil.rmtree(folder / f"{name}-{number}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _table("Memory", found, ("plain copy",), 0.6)


def on_disk(source: Memory, target: Memory, base: Path) -> Table:
    """SSD: a put ends when the bytes are on the disk, and nothing is read from a cache."""
    folder = Path(tempfile.mkdtemp(prefix="tercet-pool-", dir=base))
    found: dict[str, tuple[list[float], list[float]]] = {}
    huge = Memory(VALUES * VALUE, filled=True, huge=True)
    small = PoolConfig(
        dram_bytes=BATCH * VALUE,
        disk_path=str(folder / "slab"),
        disk_bytes=2 * VALUES * VALUE,
        want_s=600,
        put_s=600,
    )
    try:
        for number in range(ROUNDS):
            pool = Bench(source, target, small, threaded=True)
            makers: list[tuple[str, Callable[[], Any]]] = [
                (PLAIN, lambda: Direct(folder / "direct", source, target)),
                (HUGE, lambda: Direct(folder / "direct", huge, huge)),
                ("pool", lambda one=pool: one),
            ]
            makers += [
                (
                    name,
                    lambda make=make, at=folder / f"{name}-{number}": make(
                        at, source, target, through=True
                    ),
                )
                for name, make in contenders()
            ]
            for name, make in makers:
                one = make()
                puts, gets = found.setdefault(name, ([], []))
                puts.append(gigabytes_per_s(one.put, batches()))
                if name != "pool":
                    one.cool()
                gets.append(gigabytes_per_s(one.get, batches()))
            for name, _ in contenders():
                shutil.rmtree(folder / f"{name}-{number}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _table("Disk", found, (PLAIN, HUGE), 0.7)


def contenders() -> list[tuple[str, Callable[..., Any]]]:
    """Who else stores values; LMDB where it is installed."""
    found: list[tuple[str, Callable[..., Any]]] = [("file a block", Files)]
    if importlib.util.find_spec("lmdb") is not None:
        found.append(("LMDB", Lmdb))
    return found


def _table(
    title: str,
    found: dict[str, tuple[list[float], list[float]]],
    beside: tuple[str, ...],
    bound: float,
) -> Table:
    medians = {name: (middle(puts), middle(gets)) for name, (puts, gets) in found.items()}
    bars = []
    for place, what in enumerate(("put", "get")):
        for name in medians.keys() - {"pool"}:
            times, least = medians["pool"][place] / medians[name][place], 1.0
            if name in beside:
                least = bound
            bars.append(Bar(what=f"{what}, of {name}", value=times, bound=least, at_least=True))
    rows = [(name, f"{put:.2f}", f"{get:.2f}") for name, (put, get) in medians.items()]
    if "LMDB" not in medians:
        rows.append(("LMDB", "not installed", "--peers names a folder that has it"))
    return Table(
        title=title,
        command="",
        columns=("GB/s, medians of 5 rounds", "put", "get"),
        rows=rows,
        bars=sorted(bars, key=lambda bar: bar.what),
    )


def index_of(count: int) -> Table:
    """The index with so many values, both tiers and their lists included."""
    index, spaces = Index(), Namespaces()
    dram, disk = (
        Tier(index, [(count + 64) * 4096], policy="lru", watermark=1.0, left=index.forget)
        for _ in range(2)
    )
    index.column("I", 0)  # records and orders of labels
    index.column("I", 0)
    space = spaces.number(bytes(16))
    words = np.random.default_rng(4).integers(0, 1 << 63, (count, 2), np.uint64).tolist()
    before = _resident()
    began = time.perf_counter()
    worst = 0.0
    for a, b in words:
        turn = time.perf_counter()
        entry = index.add(a, b)
        index.size[entry] = 4096
        for tier in (dram, disk):
            place = tier.reserve(4096, 0, b)
            if place is not None:
                tier.commit(entry, place, 0)
        worst = max(worst, time.perf_counter() - turn)
    added = time.perf_counter() - began
    grown = _resident() - before
    began = time.perf_counter()
    missed = sum(index.find(a, b) == NONE for a, b in words[:: max(1, count // 1_000_000)])
    looked = (time.perf_counter() - began) / len(words[:: max(1, count // 1_000_000)])
    if missed or space is None or len(index) != count:
        raise RuntimeError(f"{missed} keys were not found again")
    rows = (
        ("values, in memory and on disk", count),
        ("bytes a value: columns and buckets", index.num_bytes / count),
        ("bytes a value: all that the process grew by (places too)", grown / count),
        ("us to add one, with a place in both tiers", added / count * 1e6),
        ("us to find one", looked * 1e6),
        ("ms, the slowest single addition", worst * 1e3),
    )
    bar = Bar(what="bytes a value", value=grown / count, bound=200)
    return Table(title="Index", command="", columns=("what", "value"), rows=rows, bars=(bar,))


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@click.command()
@click.option("--folder", default=".", help="On the disk to measure.")
@click.option("--peers", default="", help="A folder where LMDB's package is installed.")
@click.option("--keys", default=10_000_000, help="Values in the index.")
@click.option("--only", type=click.Choice(("memory", "disk", "index")), help="This part alone.")
def main(folder: str, peers: str, keys: int, only: str | None) -> None:
    """Measure all three and print the tables."""
    if peers:
        sys.path.append(peers)
    source, target = Memory(VALUES * VALUE, filled=True), Memory(VALUES * VALUE)
    print("\n".join([*heading(), ""]), flush=True)
    parts: dict[str, Callable[[], Table]] = {
        "memory": lambda: in_memory(source, target),
        "disk": lambda: on_disk(source, target, Path(folder)),
        "index": lambda: index_of(keys),
    }
    for name, measure in parts.items():
        if only in {None, name}:
            print("\n".join(measure().lines()), flush=True)


if __name__ == "__main__":
    main()
