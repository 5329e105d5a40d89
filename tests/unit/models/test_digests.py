"""Digests are remembered for one state of a file and never outlive it."""

import hashlib
import os
from pathlib import Path

import pytest

from tercet.base.errors import Invalid
from tercet.models.digests import SETTLE_NS, DigestCache, file_state


@pytest.fixture
def digests(tmp_path: Path) -> DigestCache:
    return DigestCache(tmp_path / "digests")


def settled(path: Path, content: bytes) -> Path:
    """A file whose modification lies long back; the change of its inode is of now."""
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))
    return path


def test_is_the_sha256_of_the_content_with_progress(digests: DigestCache, tmp_path: Path) -> None:
    content = bytes(range(256)) * 40_000
    seen: list[tuple[int, int]] = []
    path = settled(tmp_path / "a", content)
    digest = digests.sha256(path, lambda done, total: seen.append((done, total)))
    assert digest == hashlib.sha256(content).hexdigest()
    assert seen[-1] == (len(content), len(content))
    assert len(seen) > 1


def test_is_remembered_for_a_state_and_forgotten_with_it(
    digests: DigestCache, tmp_path: Path
) -> None:
    path = settled(tmp_path / "a", b"one")
    state = file_state(path)
    digests.remember(path, state, "digest")
    assert digests.recall(path, state) == "digest"
    assert digests.sha256(path) == "digest"
    path.write_bytes(b"two")
    os.utime(path, ns=(1, 1))  # same size, same modification time: the inode's change tells
    assert digests.recall(path, file_state(path)) is None
    assert digests.sha256(path) == hashlib.sha256(b"two").hexdigest()


def test_a_file_that_was_replaced_is_another(digests: DigestCache, tmp_path: Path) -> None:
    path = settled(tmp_path / "a", b"one")
    digests.remember(path, file_state(path), "digest")
    settled(tmp_path / "b", b"two").replace(path)
    assert digests.sha256(path) == hashlib.sha256(b"two").hexdigest()


def test_a_fresh_file_is_not_remembered(digests: DigestCache, tmp_path: Path) -> None:
    """Within one tick of the file system's clock it could change again unseen."""
    path = tmp_path / "a"
    path.write_bytes(b"one")
    ahead = path.stat().st_mtime_ns + 1000 * SETTLE_NS
    os.utime(path, ns=(ahead, ahead))
    digests.sha256(path)
    assert digests.recall(path, file_state(path)) is None


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"path": 1}'])
def test_a_damaged_memory_is_ignored(digests: DigestCache, tmp_path: Path, content: bytes) -> None:
    path = settled(tmp_path / "a", b"one")
    digests.remember(path, file_state(path), "digest")
    (memory,) = (tmp_path / "digests").iterdir()
    memory.write_bytes(content)
    assert digests.sha256(path) == hashlib.sha256(b"one").hexdigest()


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "digests").write_text("a file")
    path = settled(tmp_path / "a", b"one")
    digests = DigestCache(tmp_path / "digests")
    digests.remember(path, file_state(path), "digest")
    assert digests.sha256(path) == hashlib.sha256(b"one").hexdigest()


def test_a_missing_file_is_said(digests: DigestCache, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="none cannot be read: No such file"):
        digests.sha256(tmp_path / "none")
