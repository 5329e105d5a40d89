"""Roles and the pool under chaos: how such a tree is made, what is done to it, when it rests."""

import contextlib
import dataclasses
import fcntl
import os
import signal
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import psutil
from handed_over import serves, status
from house import POISON, House
from saboteur import Deed, Saboteur
from streams import Ask

from tercet.base.tokenizer import BYTES_VOCAB
from tercet.pool.config import PoolConfig
from tercet.pool.disk import DiskLayout
from tercet.runtime.config import TreeConfig
from tercet.transfer.config import TransferConfig, WayChoice

ROLES = {"prefill": 2, "decode": 2, "colocated": 0}
OTHER_ROLES = (
    {"prefill": 1, "decode": 3, "colocated": 0},
    {"prefill": 1, "decode": 1, "colocated": 2},
    {"prefill": 2, "decode": 1, "colocated": 0},
    {"prefill": 3, "decode": 2, "colocated": 0},
    {"prefill": 0, "decode": 0, "colocated": 3},
)
DISK_BYTES = 64 << 20
DRAM_BYTES = 300_000
"""Few values: the others are on disk alone."""
FULL_FROM = 2 << 20
"""Byte of the file from which a full disk takes nothing; arenas are smaller."""
FULL_S = 3.0
READ_ONLY = "make the disk read-only"
READ_ONLY_S = 3.0
SPOILED = 200
"""Places of the disk that are written over at a time."""
_GET_FLAGS, _SET_FLAGS, _IMMUTABLE = 0x80086601, 0x40086602, 0x10
"""Of ioctl_iflags(2), as on machines of 64 bits."""
_COMMON_TOKENS = (70, 150, 260)
_OWN_TOKENS = (5, 33, 80, 190)


def with_peers(config: TreeConfig, *, way: WayChoice, disk: Path) -> TreeConfig:
    """The same tree with roles, a pool that is always asked, and leases that end soon."""
    pool = PoolConfig(
        dram_bytes=DRAM_BYTES, disk_path=str(disk), disk_bytes=DISK_BYTES, value_tokens=32
    )
    transfer = TransferConfig(way=way, populate="always", lease_s=2.0, renew_s=0.5, silence_s=2.0)
    prefill, decode = ROLES["prefill"], ROLES["decode"]
    runtime = dataclasses.replace(config.runtime, prefill=prefill, decode=decode, replicas=0)
    return dataclasses.replace(config, runtime=runtime, pool=pool, transfer=transfer)


def long_asks(rand: Random, count: int, *, tokens_max: int) -> list[Ask]:
    """Prompts of several blocks; three in four begin like others."""

    def tokens(length: int) -> tuple[int, ...]:
        drawn = (rand.randrange(1, BYTES_VOCAB - 4) for _ in range(length))
        return tuple(POISON + 1 if token == POISON else token for token in drawn)

    commons = [tokens(length) for length in _COMMON_TOKENS]
    return [
        Ask(
            (commons[number % 4] if number % 4 < len(commons) else ())
            + tokens(rand.choice(_OWN_TOKENS)),
            rand.randint(tokens_max // 3, tokens_max),
            frequency_penalty=0.2 if number % 2 else 0.0,
        )
        for number in range(count)
    ]


def unrest_of_peers(house: House, count: int, roles: Mapping[str, int] = ROLES) -> str:
    """Say what so many executors still do, hold, lend, fetch or store; of their blocks they tell
    themselves, each half second.
    """
    shown = status(house)
    if any(shown["jobs"].values()):
        return f"jobs: {shown['jobs']}"
    troubles = [trouble for one in shown["executors"] if (trouble := _trouble(one))]
    if troubles:
        return "; ".join(troubles)
    found = [one["role"] for one in shown["executors"]]
    if any(found.count(role) != number for role, number in roles.items()):
        return f"roles are {found}"
    return "" if serves(house, count) else f"not all are linked: {shown['executors']}"


def _trouble(one: dict[str, Any]) -> str:
    books = one["cache"]
    counts = {name: one.get(name) for name in ("tasks", "prompts")} | {
        name: books.get(name) for name in ("held", "leases", "fetches", "populates", "stores")
    }
    told = one["state"] == "ready" and one["role"] == one["serves_as"] and books
    if told and not any(counts.values()) and books["free"] + books["cached"] == books["total"]:
        return ""
    return f"executor {one['executor']}, {one['state']} as {one['serves_as']}: {counts}, {books}"


def moved(house: House) -> dict[str, Any]:
    """What was counted of hand-overs, the pool and rejected blocks."""
    counted: dict[str, Any] = status(house)["transfers"]
    return counted


def settle(house: House) -> None:
    """Want the roles of the beginning again."""
    house.client.put("/tercet/roles", json=ROLES).raise_for_status()


def _of_role(saboteur: Saboteur, name: str, role: str, number: int) -> None:
    titles = [title for title in saboteur.executors() if title.split()[4] == role]
    if not titles:
        return
    title = saboteur.rand.choice(titles)
    if role != "prefill":
        saboteur.harm(name, [title], number)
        return
    saboteur.note(name, _prompts(saboteur, title.split()[3]), is_of_prompts=True)
    for pid in saboteur.house.processes().get(title, ()):
        saboteur.house.kill(pid, number)


def _prompts(saboteur: Saboteur, executor: str = "") -> int:
    """Prompts that an executor, or all together, were given to compute and that wait for it."""
    executors = status(saboteur.house)["executors"]
    return sum(one.get("prompts", 0) for one in executors if executor in {"", str(one["executor"])})


def _spare_prompts(saboteur: Saboteur, name: str) -> None:
    saboteur.note(name, _prompts(saboteur), is_of_prompts=True)


def _change_roles(saboteur: Saboteur, name: str) -> None:
    saboteur.spare(name)
    wanted = saboteur.rand.choice((*OTHER_ROLES, ROLES))
    saboteur.house.client.put("/tercet/roles", json=wanted).raise_for_status()


def deeds_to_disk(disk: Path) -> dict[str, Deed]:
    """What can be done to the file of a pool while it is used."""
    layout = DiskLayout.of(DISK_BYTES)

    def corrupt(saboteur: Saboteur, name: str) -> None:
        saboteur.spare(name)
        with disk.open("r+b", buffering=0) as file:
            for _ in range(SPOILED):
                unit = saboteur.rand.randrange(layout.data_bytes // layout.unit_bytes // 8)
                record = saboteur.rand.randrange(layout.num_records)
                os.pwrite(file.fileno(), saboteur.rand.randbytes(4096), layout.unit_at(unit))
                os.pwrite(file.fileno(), saboteur.rand.randbytes(8), layout.record_at(record))

    def fill(saboteur: Saboteur, name: str) -> None:
        """The kernel answers writes behind a place as a full disk does."""
        saboteur.spare(name)
        with contextlib.suppress(psutil.NoSuchProcess):
            for pid in saboteur.house.pids("tercet: node agent"):
                agent = psutil.Process(pid)
                _, hard = agent.rlimit(psutil.RLIMIT_FSIZE)
                agent.rlimit(psutil.RLIMIT_FSIZE, (FULL_FROM, hard))
                time.sleep(FULL_S)
                agent.rlimit(psutil.RLIMIT_FSIZE, (hard, hard))

    def refuse_writes(saboteur: Saboteur, name: str) -> None:
        """The kernel refuses every write to what it goes on to read."""
        saboteur.spare(name)
        with contextlib.ExitStack() as until:
            for path in (disk, Path(f"{disk}.notes")):
                until.enter_context(_immutable(path))
            time.sleep(READ_ONLY_S)

    return {
        "corrupt the pool's disk": corrupt,
        "fill the pool's disk": fill,
        READ_ONLY: refuse_writes,
    }


def may_refuse_writes(folder: Path) -> bool:
    """Whether this filesystem has the flag, and we the right to set it."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        try:
            with _immutable(Path(file.name)):
                return True
        except OSError:
            return False


@contextlib.contextmanager
def _immutable(path: Path) -> Iterator[None]:
    """Even who opened the file before cannot write to it; who reads it does not notice."""
    with path.open("rb") as file:
        (flags,) = struct.unpack("l", fcntl.ioctl(file, _GET_FLAGS, bytes(8)))
        fcntl.ioctl(file, _SET_FLAGS, struct.pack("l", flags | _IMMUTABLE))
        try:
            yield
        finally:
            fcntl.ioctl(file, _SET_FLAGS, struct.pack("l", flags))


DEEDS: Mapping[str, Deed] = {
    "no prompt, to compare": _spare_prompts,
    "kill a prefill": lambda who, name: _of_role(who, name, "prefill", signal.SIGKILL),
    "stop a prefill": lambda who, name: _of_role(who, name, "prefill", signal.SIGSTOP),
    "kill a decode": lambda who, name: _of_role(who, name, "decode", signal.SIGKILL),
    "stop a decode": lambda who, name: _of_role(who, name, "decode", signal.SIGSTOP),
    "change the roles": _change_roles,
}
