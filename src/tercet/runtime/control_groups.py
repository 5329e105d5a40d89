"""Where the kernel says what this process's control groups may use, in both versions.

version 2   0::/a/b           /sys/fs/cgroup/a/b, /sys/fs/cgroup/a, /sys/fs/cgroup
version 1   4:memory:/c       /sys/fs/cgroup/memory/c, /sys/fs/cgroup/memory
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Group:
    """One group's folder; every group above a process binds it too."""

    folder: Path
    version: int

    def read(self, name: str) -> str:
        """Give the text of a file, without white space around it; `OSError` if there is none."""
        return (self.folder / name).read_text().strip()


def groups(controller: str, root: Path = Path("/")) -> Iterator[Group]:
    """Give this process's group under the controller, and all above it."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    mount = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from (Group(folder, 2) for folder in _up(mount, path))
        elif controller in controllers.split(","):
            yield from (Group(folder, 1) for folder in _up(mount / controller, path))


def _up(mount: Path, path: str) -> list[Path]:
    """Give the group's folder and all above it; a container may show only its own as the root."""
    folder = mount / path.strip("/")
    return [folder, *[one for one in folder.parents if one.is_relative_to(mount)]]
