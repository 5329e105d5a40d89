"""From files, environment and arguments to the configuration of one process tree.

    defaults  <  configuration file  <  TERCET_* environment  <  flags  <  --set

A flag is an alias of one key. The spellings of vLLM that mean something here are hidden flags.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from tercet.base.errors import Invalid
from tercet.cli.settings import Resolved, Source, file_source, resolve, set_source
from tercet.runtime.config import TreeConfig

_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join(_UNITS)})")
MODEL = "smollm2"
"""What is served where nobody says what."""
Command = TypeVar("Command", bound=Callable[..., Any])

FLAGS: Mapping[str, tuple[str, str]] = {
    "host": ("runtime.host", "Address to listen on."),
    "port": ("runtime.port", "Port to listen on; 0: any free one."),
    "device": ("runtime.device", "auto, cpu, cuda, npu or cost (made-up tokens)."),
    "prefill": ("runtime.prefill", "Executors that compute prompts for others."),
    "decode": ("runtime.decode", "Executors that have others compute their prompts."),
    "colocated": ("runtime.replicas", "Executors that do both; 1 if there are no others."),
    "replicas": ("runtime.replicas", "The same as --colocated."),
    "quantization": ("runtime.quantization", "Of matrices: auto (the file's), none, int8, int4."),
    "kv-dtype": ("runtime.kv_dtype", "Of keys and values: auto, bf16, int8 or float32."),
    "threads": ("runtime.threads", "Threads of each executor."),
    "context-max": ("context_max", "Serve shorter contexts than the model's."),
    "kv-cache-memory-bytes": ("runtime.kv_cache_memory_bytes", "KV memory of each executor."),
    "max-queued-jobs": ("job_executor.max_queued_jobs", "More are answered with 503."),
    "shutdown-timeout": ("runtime.shutdown_timeout_s", "Seconds that running jobs get at the end."),
    "speculation": ("scheduling.speculation", "auto or off: guess next tokens where it pays."),
    "pool-dram": ("pool.dram_bytes", "Memory of the pool on each host; 0: no pool."),
    "pool-disk": ("pool.disk_path", "File of the pool on disk."),
    "pool-disk-bytes": ("pool.disk_bytes", "Its size."),
    "cluster-address": ("runtime.cluster_address", "HOST:PORT where other hosts join."),
    "cluster-secret-file": ("runtime.cluster_secret_file", "What all hosts know, in a file."),
    "hosts": ("runtime.hosts", "Hosts that share the executors, this one included."),
    "record": ("runtime.record", "Folder for recordings of every machine."),
    "log-format": ("observe.log_format", "text or json."),
    "log-level": ("observe.log_level", "debug, info, warning or error."),
}
"""Visible flags: key and help."""

LOCAL = ("device", "quantization", "kv-dtype", "threads")
"""Those that `tercet run` and `tercet chat` have as well."""

VLLM_SPELLINGS: Mapping[str, str] = {
    "max-model-len": "context_max",
    "max-num-seqs": "scheduling.max_slots",
    "max-num-batched-tokens": "scheduling.max_rows",
    "max-num-queued-reqs": "job_executor.max_queued_jobs",
    "gpu-memory-utilization": "runtime.memory_fraction",
    "kv-cache-dtype": "runtime.kv_dtype",
    "data-parallel-size": "runtime.replicas",
    "uvicorn-log-level": "observe.log_level",
}
"""Hidden flags: the key that each means."""

VLLM_GIVEN: Mapping[str, tuple[str, ...]] = {
    "block-size": ("16",),
    "dtype": ("auto", "float", "float32"),
    "tensor-parallel-size": ("1",),
    "pipeline-parallel-size": ("1",),
    "load-format": ("auto", "safetensors", "gguf"),
}
"""Hidden flags for what is fixed today: accepted with these values only."""

VLLM_ALWAYS_ON = ("enable-prefix-caching", "enable-chunked-prefill")


def serving_options(command: Command) -> Command:
    """Give a command every option that configures a process tree."""
    options = [
        click.option("--config", type=click.Path(path_type=Path), help="A TOML file."),
        click.option("--served-model-name", multiple=True, help="What clients call the model."),
        click.option("--api-key", multiple=True, envvar="TERCET_API_KEY", help="A key (repeat)."),
        click.option("--chat-template", type=click.Path(path_type=Path), help="A Jinja file."),
        click.option("--insecure", is_flag=True, help="Allow an open address without a key."),
        click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any key."),
    ]
    for name, (_, text) in FLAGS.items():
        variable = "TERCET_" + name.replace("-", "_").upper()
        options.append(click.option(f"--{name}", envvar=variable, help=text))
    options += [click.option(f"--{name}", hidden=True) for name in VLLM_SPELLINGS]
    options += [
        click.option(f"--{name}", type=click.Choice(values), hidden=True)
        for name, values in VLLM_GIVEN.items()
    ]
    options += [click.option(f"--{name}", is_flag=True, hidden=True) for name in VLLM_ALWAYS_ON]
    for option in reversed(options):
        command = option(command)
    return command


def local_options(command: Command) -> Command:
    """Give a command the options of a model that only this command uses."""
    command = click.option(
        "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any key."
    )(command)
    for name in reversed(LOCAL):
        command = click.option(f"--{name}", help=FLAGS[name][1])(command)
    return command


def local_settings(options: Mapping[str, Any]) -> dict[str, object]:
    """What was given of them, by key."""
    given = {FLAGS[name][0]: options[name.replace("-", "_")] for name in LOCAL}
    chosen = {key: value for key, value in given.items() if value is not None}
    return {**chosen, **set_source(options["assignments"]).values}


def local_config(model: str, options: Mapping[str, Any]) -> TreeConfig:
    """The configuration of such a command."""
    sources = [
        Source("default", {"cache_folder": str(cache_folder())}),
        Source("settings", local_settings(options)),
        Source("argument", {"model": model}),
    ]
    return resolve(TreeConfig, sources).value


def compose(context: click.Context, model: str | None) -> Resolved[TreeConfig]:
    """Resolve the configuration from everything the command was given."""
    given = context.params
    sources = [Source("default", {"model": MODEL, "cache_folder": str(cache_folder())})]
    if given["config"] or default_config().is_file():
        sources.append(file_source(given["config"] or default_config()))
    sources.append(_flags(context, ParameterSource.ENVIRONMENT, "environment"))
    sources.append(_flags(context, ParameterSource.COMMANDLINE, "flag"))
    if model is not None:
        sources.append(Source("argument", {"model": model}))
    sources.append(set_source(given["assignments"]))
    resolved = resolve(TreeConfig, sources)
    _refuse_open_door(resolved.value, insecure=given["insecure"])
    return resolved


def cache_folder() -> Path:
    """Where models and images are kept: XDG_CACHE_HOME, or ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "tercet"


def default_config() -> Path:
    """The file that is read when none is named: XDG_CONFIG_HOME, or ~/.config."""
    root = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(root) / "tercet" / "config.toml"


def _flags(context: click.Context, origin: ParameterSource, name: str) -> Source:
    keys = {flag: key for flag, (key, _) in FLAGS.items()} | dict(VLLM_SPELLINGS)
    values: dict[str, object] = {}
    for flag, key in keys.items():
        parameter = flag.replace("-", "_")
        if context.get_parameter_source(parameter) is origin:
            values[key] = sized(key, context.params[parameter])
    if context.get_parameter_source("api_key") is origin:
        values["api.api_keys"] = context.params["api_key"]
    if context.get_parameter_source("served_model_name") is origin:
        values["served_names"] = context.params["served_model_name"]
    template = context.params["chat_template"]
    if template and context.get_parameter_source("chat_template") is origin:
        values["chat_template"] = _read(template)
    return Source(name, values)


def sized(key: str, text: object) -> object:
    """Give a size that a person wrote (`2GiB`) as bytes; other values as they are."""
    match = _SIZE.fullmatch(text) if key.endswith("_bytes") and isinstance(text, str) else None
    return text if match is None else int(float(match[1]) * _UNITS[match[2]])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"cannot read {path}: {error}", parameter="chat-template") from error


def _refuse_open_door(config: TreeConfig, *, insecure: bool) -> None:
    import ipaddress  # only for who listens

    host = config.runtime.host
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not (local or config.api.api_keys or insecure):
        raise Invalid(
            f"--host {host} can be reached from outside: give --api-key, or --insecure to allow "
            "everybody",
            parameter="host",
        )
