"""How many cores a host grants, by affinity and by quotas in both versions of control groups."""

import os
from pathlib import Path

import pytest

from tercet.runtime.cores import threads_each, usable_cores

HERE = range(64)


@pytest.fixture(autouse=True)
def many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(HERE))


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.mark.parametrize(
    ("own", "above", "cores"),
    [
        ("max 100000", "max 100000", 64),
        ("400000 100000", "max 100000", 4),
        ("max 100000", "250000 100000", 2),
        ("800000 100000", "300000 100000", 3),
        ("50000 100000", "max 100000", 1),
        ("9900000 100000", "max 100000", 64),
        ("nonsense", "max 100000", 64),
    ],
)
def test_the_tightest_quota_of_version_2_counts(
    tmp_path: Path, own: str, above: str, cores: int
) -> None:
    write(tmp_path / "proc/self", cgroup="0::/a/b\n")
    write(tmp_path / "sys/fs/cgroup/a/b", cpu__max=own + "\n")
    write(tmp_path / "sys/fs/cgroup/a", cpu__max=above + "\n")
    assert usable_cores(tmp_path) == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", 64), ("600000", 6)])
def test_version_1_is_read_too(tmp_path: Path, quota: str, cores: int) -> None:
    write(tmp_path / "proc/self", cgroup="3:cpuset:/\n5:cpu,cpuacct:/c\n")
    folder = tmp_path / "sys/fs/cgroup/cpu/c"
    write(folder, cpu__cfs_quota_us=quota + "\n", cpu__cfs_period_us="100000\n")
    assert usable_cores(tmp_path) == cores


def test_no_group_leaves_what_the_process_may_run_on(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == len(HERE)


@pytest.mark.parametrize(("replicas", "cores", "threads"), [(1, 4, 4), (2, 5, 2), (8, 4, 1)])
def test_every_executor_gets_its_share_and_at_least_one(
    replicas: int, cores: int, threads: int
) -> None:
    assert threads_each(replicas, cores) == threads
