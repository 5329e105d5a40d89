"""More of the machine than `benchmarks.machine` says: caches, and every flag that kernels use."""

from pathlib import Path

SHOWN = [
    "avx2",
    "fma",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "asimddp",
    "i8mm",
    "bf16",
    "sve",
]
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def described() -> list[str]:
    """Lines for the head of a report."""
    words = Path("/proc/cpuinfo").read_text().split()
    found = " ".join(flag for flag in SHOWN if flag in words)
    return [f"- instructions: {found}", f"- caches of a core: {', '.join(_caches()) or 'unknown'}"]


def _caches() -> list[str]:
    found = []
    for place in sorted(CACHES.glob("index*")):
        kind, level, size = (
            (place / name).read_text().strip() for name in ("type", "level", "size")
        )
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return found
