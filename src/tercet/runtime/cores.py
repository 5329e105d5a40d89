"""How many cores the processes of this host may use, and how many each executor gets."""

import os
from pathlib import Path

from msgspec import Struct

from tercet.runtime.control_groups import Group, groups


def threads_each(replicas: int, cores: int) -> int:
    """Give every executor its share of the cores, at least one."""
    return max(1, cores // replicas)


class Cores(Struct, frozen=True, kw_only=True):
    """What there is, and what of it this process may use."""

    online: int
    affinity: int
    """Cores that it may run on."""
    quotas: tuple[float, ...]
    """Cores' worth of time that its control groups may use; empty: no limit."""

    @property
    def usable(self) -> int:
        """Whole cores that it can have all the time, at least one."""
        return max(1, min([self.affinity, *map(int, self.quotas)]))


def count_cores(root: Path = Path("/")) -> Cores:
    """Count what the host has and what this process may use of it."""
    affinity = len(os.sched_getaffinity(0))
    return Cores(
        online=os.cpu_count() or affinity,
        affinity=affinity,
        quotas=tuple(quota for quota in map(_quota, groups("cpu", root)) if quota),
    )


def usable_cores(root: Path = Path("/")) -> int:
    """Give the cores that this process may run on, no more than its control groups' quotas."""
    return count_cores(root).usable


def _quota(group: Group) -> float | None:
    """Give the cores' worth of time that a group may use; None if there is no limit."""
    try:
        if group.version == 2:
            quota, period = group.read("cpu.max").split()
        else:
            quota, period = group.read("cpu.cfs_quota_us"), group.read("cpu.cfs_period_us")
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
