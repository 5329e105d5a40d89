"""What the numbers were measured on, and whether anything else ran meanwhile."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

CALM_LOAD = 1.5
"""Above this load average other programs disturb the times; ratios taken side by side remain."""


def processor() -> str:
    """Name the CPU as the kernel does."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def flags() -> str:
    """Name the vector instructions that matrix products depend on."""
    words = Path("/proc/cpuinfo").read_text().split()
    shown = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile")
    return " ".join(flag for flag in shown if flag in words)


def heading() -> list[str]:
    """Describe machine and versions, as Markdown lines."""
    memory = psutil.virtual_memory().total / 2**30
    versions = ", ".join(
        f"{name} {found}"
        for name in ("numpy", "uvloop", "msgspec", "torch", "transformers")
        if (found := _version(name))
    )
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return [
        f"- machine: {processor()} ({flags()}), {os.cpu_count()} cores, {memory:.0f} GiB",
        f"- system: {system}, {versions}",
        f"- when: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {load_sentence()}",
    ]


def load_sentence() -> str:
    """Say how busy the machine was before this began."""
    load = os.getloadavg()[0]
    calm = "calm" if load < CALM_LOAD else "NOT calm: read ratios, not times"
    return f"load average {load:.2f} ({calm})"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
