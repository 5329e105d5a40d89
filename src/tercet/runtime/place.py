"""Which host of a cluster a process tree is: the first one, or one that joined it."""

import hashlib
import time
from dataclasses import dataclass, field
from pathlib import Path

from tercet.base.errors import Invalid
from tercet.base.ids import Address
from tercet.runtime.config import RuntimeConfig

LOCAL = "local"
_EPOCHS_FROM_S = 1_767_225_600
"""2026-01-01: epochs of hosts of a cluster count milliseconds from here, so that they grow over
restarts of whole trees, however soon they come back."""
SECRET_BYTES_MIN = 16


@dataclass(frozen=True)
class Place:
    """A tree alone on its host, unless it is said otherwise."""

    host: str = LOCAL
    secret: bytes | None = field(default=None, repr=False)
    """Shared by all hosts of the cluster; None: the tree makes one for itself."""
    endpoints: dict[Address, str] = field(default_factory=dict)
    """Where the first host's machines are; empty: this is the first host."""

    @property
    def joined(self) -> bool:
        return bool(self.endpoints)

    @property
    def first_epoch(self) -> int:
        """No process of a former tree of this host has as high a one: none starts a process each
        millisecond.
        """
        alone = self.secret is None
        return 0 if alone else int((time.time() - _EPOCHS_FROM_S) * 1000)


def read_secret(path: Path) -> bytes:
    """Give the secret that a file holds, whatever its length; `Invalid` if it is none."""
    try:
        said = path.read_bytes().strip()
    except OSError as error:
        raise Invalid(
            f"The cluster's secret cannot be read from {path}: {error.strerror}.",
            parameter="secret-file",
        ) from error
    if len(said) < SECRET_BYTES_MIN:
        raise Invalid(
            f"The cluster's secret in {path} has {len(said)} bytes; expected at least "
            f"{SECRET_BYTES_MIN}.",
            parameter="secret-file",
        )
    return hashlib.sha256(said).digest()


def first_place(runtime: RuntimeConfig) -> Place:
    """Give the place of a tree that joins nobody: alone, or the first host of a cluster."""
    path = runtime.cluster_secret_file
    return Place() if path is None else Place(secret=read_secret(Path(path)))
