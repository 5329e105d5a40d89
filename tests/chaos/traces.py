"""What a tree has of processes, descriptors and shared memory: the same before and after chaos."""

import contextlib
import re
from collections import Counter
from pathlib import Path

import psutil
from house import House

_NUMBER = re.compile(r"\d+")


def holdings(house: House) -> Counter[str]:
    """Count what the processes of the tree have, by kind: equal for a tree at rest and later.

    Descriptors and mappings are named without their numbers, executors without their ids.
    """
    found: Counter[str] = Counter()
    for title, pids in house.processes().items():
        for pid in pids:
            found[kind(title)] += 1
            found.update(f"{kind(title)}: {kind(name)}" for name in of_process(pid))
    return found


def kind(name: str) -> str:
    """A name without its numbers."""
    return _NUMBER.sub("#", name)


def difference(before: Counter[str], after: Counter[str]) -> dict[str, tuple[int, int]]:
    """Give what there is more or less of, with both counts."""
    names = sorted({*before, *after})
    return {name: (before[name], after[name]) for name in names if before[name] != after[name]}


def zombies(house: House) -> list[int]:
    """Dead children of the tree that nobody has reaped."""
    supervisors = house.pids("tercet: supervisor")
    children = [
        child for pid in supervisors for child in psutil.Process(pid).children(recursive=True)
    ]
    return [child.pid for child in children if child.status() == psutil.STATUS_ZOMBIE]


def abstract_sockets(house: House) -> set[str]:
    """Names of listening Unix sockets of the tree."""
    inodes = set()
    for pid in house.pids("tercet: supervisor"):
        for descriptor in _links(pid):
            if descriptor.startswith("socket:["):
                inodes.add(descriptor[8:-1])
    return {name for inode, name in _unix_sockets() if inode in inodes and name}


def sockets_left(names: set[str]) -> set[str]:
    return names & {name for _, name in _unix_sockets()}


def files(cache: Path) -> set[str]:
    """Everything in shared memory and in the model cache: a tree writes nowhere else."""
    return set(map(str, (*Path("/dev/shm").iterdir(), *cache.rglob("*"))))


def of_process(pid: int) -> list[str]:
    """Names of what a process has open or shares with others."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    mapped = [
        "mapped " + line.split(maxsplit=5)[5]
        for line in maps
        if "/memfd:" in line or "/dev/shm" in line
    ]
    return _links(pid) + mapped


def _links(pid: int) -> list[str]:
    links = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(str(descriptor.readlink()))
    return links


def _unix_sockets() -> list[tuple[str, str]]:
    """Inode and name of all of this host; a name is empty where there is none."""
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return [(row[6], row[7] if len(row) > 7 else "") for row in rows]
