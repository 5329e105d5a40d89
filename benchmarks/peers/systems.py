"""The systems that are compared: what each is started with, and in which format it computes."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.machine import flags
from benchmarks.models import checkpoint_file
from benchmarks.peers.environments import Homes

BF16, INT8, FOUR_BIT = "BF16", "INT8", "4-bit"
OURS = "tercet"
QUIET = {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
VLLM_KV_GB = 2


@dataclass(frozen=True, kw_only=True)
class System:
    """One product with one format of weights, in one of its modes."""

    key: str
    product: str
    form: str
    detail: str
    """Of the format and the mode, for the table."""
    worker: Sequence[str]
    """Program that answers `drivers.worker`'s commands."""
    server: Sequence[str] = ()
    """Its own HTTP server, `{port}` to be filled in; empty: it is measured under another key."""
    cold: Sequence[str] = ()
    """Program that writes one token to its standard output, where that is not the worker's way."""
    variables: Mapping[str, str] = field(default_factory=dict)
    needs: Sequence[Path] = ()
    """Without these files the system is skipped."""

    @property
    def is_ours(self) -> bool:
        return self.product == OURS

    @property
    def missing(self) -> Sequence[Path]:
        return [path for path in self.needs if not path.exists()]


def all_systems(homes: Homes, *, device: str = "auto") -> list[System]:
    """Every system, ours first; the order is the order of measuring."""
    return [*_ours(homes, device), *_llama(homes), *_openvino(homes), *_vllm(homes)]


def _ours(homes: Homes, device: str) -> list[System]:
    program = str(Path(sys.executable).with_name("tercet"))
    calibrated, kept = str(homes.w8a8), "smollm2"
    settings = (
        (INT8, "int8", calibrated, "int8", "our W8A8 checkpoint, KV in INT8"),
        (FOUR_BIT, "auto", kept, "auto", "the file"),
        (BF16, "none", kept, "auto", "BF16"),
    )
    return [
        System(
            key=f"tercet-{quantization}",
            product=OURS,
            form=form,
            detail=detail,
            worker=(
                *(sys.executable, "-m", "benchmarks.peers.ours"),
                *(quantization, kv_dtype, device, model),
            ),
            server=(
                *(program, "serve", model, "--served-model-name", "smollm2", "--port", "{port}"),
                *("--quantization", quantization, "--kv-dtype", kv_dtype, "--device", device),
            ),
            cold=(
                *(program, "run", model, "Hello", "--raw", "--max-tokens", "1"),
                *("--quantization", quantization, "--kv-dtype", kv_dtype, "--device", device),
            ),
            needs=(homes.w8a8,) if model == calibrated else (),
            variables={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        for form, quantization, model, kv_dtype, detail in settings
    ]


def _llama(homes: Homes) -> list[System]:
    mode = "plain" if "amx" in flags() else "extra"  # its AMX buffers crash on this model
    models = (
        (FOUR_BIT, "file", checkpoint_file(), "the file"),
        (FOUR_BIT, "q4_0", homes.models / "q4_0.gguf", "Q4_0"),
        (INT8, "q8_0", homes.models / "q8_0.gguf", "Q8_0"),
        (BF16, "bf16", homes.models / "bf16.gguf", "BF16"),
    )
    return [
        System(
            key=f"llama-{name}",
            product="llama.cpp",
            form=form,
            detail=detail,
            worker=_driver(homes.python("llama"), "llamacpp", str(path), mode),
            server=_llama_server(homes, path, mode),
            cold=(
                *(str(homes.llama_binary("llama-completion")), "-m", str(path), "-p", "Hello"),
                *("-n", "1", "-no-cnv", "--no-display-prompt", "--no-warmup"),
            ),
            needs=(homes.python("llama"), path),
        )
        for form, name, path, detail in models
    ]


def _llama_server(homes: Homes, model: Path, mode: str) -> Sequence[str]:
    threads = str(len(os.sched_getaffinity(0)))
    return (
        *(str(homes.llama_binary("llama-server")), "-m", str(model), "--port", "{port}"),
        *("--parallel", "16", "-c", str(16 * 1024), "-b", "2048", "-ub", "512", "--no-webui"),
        *("-t", threads, "-tb", threads, *(("--no-repack",) if mode == "plain" else ())),
    )


def _openvino(homes: Homes) -> list[System]:
    python = homes.python("openvino")
    forms = ((BF16, "fp16", "FP16 file"), (INT8, "int8", "INT8"), (FOUR_BIT, "int4", "INT4"))
    return [
        System(
            key=f"openvino-{name}-{mode}",
            product="OpenVINO GenAI",
            form=form,
            detail=f"{detail}, {mode}",
            worker=_driver(python, "openvino", str(homes.models / f"ov-{name}"), mode),
            server=_driver(python, "openvino_server", str(homes.models / f"ov-{name}"), "{port}")
            if mode == "continuous"
            else (),
            needs=(python, homes.models / f"ov-{name}" / "openvino_model.bin"),
        )
        for form, name, detail in forms
        for mode in ("static", "continuous")
    ]


def _vllm(homes: Homes) -> list[System]:
    python = homes.python("vllm")
    models = ((BF16, "bf16", homes.folder, "BF16"), (INT8, "w8a8", homes.w8a8, "our W8A8"))
    cores = sorted(os.sched_getaffinity(0))
    variables = QUIET | {
        "VLLM_CPU_KVCACHE_SPACE": str(VLLM_KV_GB),
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CACHE_ROOT": str(homes.root / "cache" / "vllm"),
        "VLLM_NO_USAGE_STATS": "1",
    }
    return [
        System(
            key=f"vllm-{name}",
            product="vllm-cpu",
            form=form,
            detail=detail,
            worker=_driver(python, "vllm", str(folder)),
            server=(
                *(str(python.with_name("vllm")), "serve", str(folder), "--port", "{port}"),
                *("--dtype", "bfloat16", "--max-model-len", "4096", "--max-num-seqs", "64"),
                *("--no-enable-prefix-caching", "--disable-uvicorn-access-log"),
            ),
            variables=variables,
            needs=(python, folder / "config.json"),
        )
        for form, name, folder, detail in models
    ]


def _driver(python: Path, module: str, *arguments: str) -> Sequence[str]:
    return (str(python), "-m", f"benchmarks.peers.drivers.{module}", *arguments)
