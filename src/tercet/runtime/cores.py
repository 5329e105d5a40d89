"""How many cores the processes of this host may use, and how many each executor gets."""

import os
from pathlib import Path

from tercet.runtime.control_groups import Group, groups


def threads_each(replicas: int, cores: int) -> int:
    """Give every executor its share of the cores, at least one."""
    return max(1, cores // replicas)


def usable_cores(root: Path = Path("/")) -> int:
    """Give the cores that this process may run on, no more than its control groups' quotas."""
    cores = len(os.sched_getaffinity(0))
    return max(
        1, min([cores, *[int(quota) for quota in map(_quota, groups("cpu", root)) if quota]])
    )


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
