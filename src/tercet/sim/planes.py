"""What lies between memories: the bus of a host, the wires between hosts, disks; each with a speed.

    scale_up     within a host, all moves of it share it
    scale_out    from one host to another, a wire of its own in each direction
    storage      to and from a host's disk

Moves on a link take their turns. A link can be slow for a while, or cut; a disk can be full.
"""

from tercet.base.rand import Rand
from tercet.sim.memories import Memory
from tercet.sim.scenario import NetworkSpec
from tercet.sim.timeline import MS, Timeline

SCALE_UP = "scale_up"
SCALE_OUT = "scale_out"
STORAGE = "storage"


class Link:
    """One way for bytes; `cut_after` is how long a connection lives through a cut."""

    def __init__(
        self, timeline: Timeline, *, plane: str, bytes_per_ns: float, latency: int, cut_after: int
    ) -> None:
        self._timeline = timeline
        self.plane = plane
        self.latency = latency
        self._bytes_per_ns = bytes_per_ns
        self._cut_after = cut_after
        self._free_at = 0
        self._slow_factor = 1.0
        self._slow_until = 0
        self._refuses_until = 0
        self._cut_until = 0
        self._broke_at = -1
        """When a cut last ended all connections."""
        self.bytes_moved = 0

    @property
    def between_hosts(self) -> bool:
        return self.plane == SCALE_OUT

    def take(self, size: int) -> int:
        """Give when so many bytes have passed, after all that asked before."""
        now = self._timeline.now
        slow = self._slow_factor if now < self._slow_until else 1.0
        begin = max(now, self._free_at)
        self._free_at = begin + int(size * slow / self._bytes_per_ns)
        self.bytes_moved += size
        return self._free_at + self.latency

    def slow_down(self, factor: float, duration: int) -> None:
        self._slow_factor, self._slow_until = factor, self._timeline.now + duration

    def refuse(self, duration: int) -> None:
        """A disk takes nothing for a while: it is full, or may only be read."""
        self._refuses_until = max(self._refuses_until, self._timeline.now + duration)

    def refuses(self) -> bool:
        return self._timeline.now < self._refuses_until

    def cut(self, until: int) -> None:
        """Let nothing through until a time; what is under way is over if that is long."""
        self._cut_until = max(self._cut_until, until)
        if until - self._timeline.now > self._cut_after:
            self._timeline.after(self._cut_after, self._break)

    def cut_for(self) -> int:
        return max(0, self._cut_until - self._timeline.now)

    def is_broken(self, since: int) -> bool:
        """Whether what began at a time has lost its connection."""
        return self._broke_at >= since

    def _break(self) -> None:
        self._broke_at = self._timeline.now


class Planes:
    """All links of a cluster, made as they are used."""

    def __init__(self, timeline: Timeline, spec: NetworkSpec) -> None:
        self._timeline = timeline
        self._spec = spec
        self._links: dict[tuple[str, str, str], Link] = {}

    def link(self, source: Memory, target: Memory) -> Link:
        """The link that a move between two memories needs. Between hosts the wire counts, not the
        disk at its end: values are brought to DRAM before they are read from elsewhere.
        """
        disk = next((one for one in (target, source) if is_disk(one)), None)
        if source.host != target.host:
            return self._get(SCALE_OUT, source.host, target.host)
        if disk is not None:
            return self._get(STORAGE, disk.name, "write" if disk is target else "read")
        return self._get(SCALE_UP, source.host, source.host)

    def wires(self, host: str) -> list[Link]:
        """All wires that begin or end at a host."""
        return [
            link for (plane, *ends), link in self._links.items()
            if plane == SCALE_OUT and host in ends
        ]  # fmt: skip

    def pair(self, one: str, other: str) -> tuple[Link, Link]:
        """The wires between two hosts, in both directions."""
        return self._get(SCALE_OUT, one, other), self._get(SCALE_OUT, other, one)

    def bus(self, host: str) -> Link:
        return self._get(SCALE_UP, host, host)

    def writes(self, disk: str) -> Link:
        """What is written to a disk."""
        return self._get(STORAGE, disk, "write")

    def any(self, rand: Rand) -> Link | None:
        """Any link that was used so far."""
        links = list(self._links.values())
        return links[rand.below(len(links))] if links else None

    def bytes_by_plane(self) -> dict[str, int]:
        sums: dict[str, int] = {}
        for link in self._links.values():
            sums[link.plane] = sums.get(link.plane, 0) + link.bytes_moved
        return sums

    def sum_time(self, size: int) -> int:
        """How long a checksum of so many bytes takes."""
        return int(size * 1000 / self._spec.scale_up_mb)

    def _get(self, plane: str, one: str, other: str) -> Link:
        link = self._links.get((plane, one, other))
        if link is None:
            spec = self._spec
            speed, latency_us = {
                SCALE_UP: (spec.scale_up_mb, 1.0),
                SCALE_OUT: (spec.scale_out_mb, 2 * spec.latency_us),
                STORAGE: (spec.disk_mb, spec.disk_us),
            }[plane]
            link = self._links[plane, one, other] = Link(
                self._timeline,
                plane=plane,
                bytes_per_ns=speed / 1000,
                latency=int(latency_us * 1000),
                cut_after=int(spec.cut_after_ms * MS),
            )
        return link


def is_disk(memory: Memory) -> bool:
    return "/disk/" in memory.name
