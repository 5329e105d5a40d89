"""The limit of decoding: how often a second the same threads reread a buffer of the weights' size.

Every token of one stream needs every weight once. A few lines of C do nothing but read, so that
what is measured is the memory and not a library.
"""

import ctypes
import math
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.models import checkpoint_file
from tercet.models.families.build import build
from tercet.models.quantization import choose_formats
from tercet.models.sources import open_checkpoint
from tercet.program.formats import Format
from tercet.program.quantize import matrices

SECONDS = 1.0
ALIGN = 64
SOURCE = """
#include <stddef.h>
#include <stdint.h>
typedef uint64_t wide __attribute__((vector_size(64)));
uint64_t reread(const wide *at, size_t count) {
    wide a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i + 8 <= count; i += 8) {
        a ^= at[i] ^ at[i + 4];
        b ^= at[i + 1] ^ at[i + 5];
        c ^= at[i + 2] ^ at[i + 6];
        d ^= at[i + 3] ^ at[i + 7];
    }
    a ^= b ^ c ^ d;
    return a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] ^ a[5] ^ a[6] ^ a[7];
}
"""


def rereads_per_s(size: int, *, folder: Path, threads: int | None = None) -> float:
    """How often a second so many threads (all cores) read a buffer of this size in bytes."""
    read = _compiled(folder)
    count = threads or len(os.sched_getaffinity(0))
    buffer = np.ones(size // 8 + ALIGN, np.uint64)
    start = -(-buffer.ctypes.data // ALIGN) * ALIGN
    part = size // ALIGN // count
    times = [0.0] * count
    gate = threading.Barrier(count)

    def turn(place: int) -> None:
        at = start + place * part * ALIGN
        read(at, part)
        gate.wait()
        began, passes = time.perf_counter(), 0
        while (spent := time.perf_counter() - began) < SECONDS:
            read(at, part)
            passes += 1
        times[place] = spent / passes

    team = [threading.Thread(target=turn, args=(place,)) for place in range(count)]
    for one in team:
        one.start()
    for one in team:
        one.join()
    return 1 / max(times)


def weight_bytes(quantization: str) -> int:
    """Bytes of all matrices, equal ones counted once, as `--quantization` stores them natively."""
    checkpoint = open_checkpoint(str(checkpoint_file()))
    program = build(checkpoint.facts().shape)
    formats = choose_formats(
        program,
        quantization,
        tensor_type=lambda name: checkpoint.describe(name).dtype,
        plain=Format.BF16,
    )
    sizes = {
        program.weights[name]: form.stored_bytes(
            math.prod(program.tensors[name].dims) // columns, columns
        )
        for name, form in formats.items()
        for columns in (matrices(program)[name],)
    }
    return sum(sizes.values())


def _compiled(folder: Path) -> Callable[[int, int], int]:
    folder.mkdir(parents=True, exist_ok=True)
    source, library = folder / "reread.c", folder / "reread.so"
    if not library.exists():
        source.write_text(SOURCE)
        options = ["-O3", "-march=native", "-shared", "-fPIC"]
        subprocess.run(["cc", *options, str(source), "-o", str(library)], check=True)
    function = ctypes.CDLL(str(library)).reread
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    function.restype = ctypes.c_uint64
    return function
