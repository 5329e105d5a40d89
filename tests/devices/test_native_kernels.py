"""The kernels' own tests (native/tests): on this machine, and on ARM where emulators are there.

They are built as `make native` and `make emulate` build them; a build that is there is reused.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CROSS = "aarch64-linux-gnu-g++"


def build(name: str, *options: str) -> Path:
    bin_folder = Path(sys.executable).parent
    tool = bin_folder / "cmake"
    if not tool.exists() or shutil.which("c++") is None:
        pytest.skip("cmake or a C++ compiler is not installed: make setup says what is missing")
    folder = ROOT / "build" / name
    make = f"-DCMAKE_MAKE_PROGRAM={bin_folder / 'ninja'}"
    given = ("-DTERCET_PYTHON=OFF", "-DTERCET_TESTS=ON", "-G", "Ninja", make, *options)
    for command in (
        [str(tool), "-S", str(ROOT), "-B", str(folder), *given],
        [str(tool), "--build", str(folder)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return folder / "native" / "tests" / "native_tests"


def passes(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.timeout(900)
def test_kernels_pass_their_own_tests() -> None:
    said = passes(str(build("native")))
    assert "portable: linear_equals_plain_loops" in said


@pytest.mark.timeout(900)
def test_portable_kernels_pass_on_arm() -> None:
    if shutil.which(CROSS) is None or shutil.which("qemu-aarch64") is None:
        pytest.skip(f"{CROSS} and qemu-aarch64 are not installed")
    binary = build(
        "aarch64",
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        f"-DCMAKE_CXX_COMPILER={CROSS}",
    )
    said = passes("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", str(binary))
    assert "avx" not in said
    assert "portable: linear_equals_plain_loops" in said
