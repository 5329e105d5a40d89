"""`tercet explain`: what this machine can do, and what would be used for a model and why."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct

from tercet.base.errors import Invalid
from tercet.base.ids import BLOCK_TOKENS
from tercet.cli.compose import local_config, local_options
from tercet.devices.choose import choose_device, resolve_device
from tercet.devices.contract import CompileOptions, Device
from tercet.devices.cpu.native import MISSING, chosen_isa, native, usable_isas
from tercet.models import has_weights
from tercet.models.image.build import plan_image
from tercet.models.image.layout import Stored
from tercet.models.image.shelf import Shelf
from tercet.models.opened import ModelPlan, plan_model
from tercet.models.registry import find_model, list_models
from tercet.program.formats import Format
from tercet.runtime.config import TreeConfig
from tercet.runtime.cores import Cores, count_cores, threads_each
from tercet.runtime.memory_budget import free_memory, plan_memory
from tercet.runtime.opening import cache_of

ISA_VARIABLE = "TERCET_ISA"
GROUPS = ("embedding", "head", "attention", "feed-forward", "norms and biases")


class Processor(Struct, frozen=True, kw_only=True):
    """Of this machine, as the native device sees it."""

    name: str
    isas: list[str]
    """Instruction sets that can be used, best first; none where the native device is missing."""
    isa: str | None
    """The one that is used."""
    forced: bool
    """Whether the variable says so."""


class Threads(Struct, frozen=True, kw_only=True):
    count: int
    why: str
    cores: Cores


class WeightGroup(Struct, frozen=True, kw_only=True):
    name: str
    formats: list[str]
    size_bytes: int


class Image(Struct, frozen=True, kw_only=True):
    path: str
    size_bytes: int
    present: bool


class Kv(Struct, frozen=True, kw_only=True):
    """Of keys and values: what `tercet serve` would take for each executor."""

    dtype: str
    bytes_per_token: int
    context_max: int
    context_bytes: int
    arena_bytes: int
    arena_tokens: int


class Model(Struct, frozen=True, kw_only=True):
    name: str
    location: str
    layers: int
    context_max: int
    weights: list[WeightGroup]
    weight_bytes: int
    """Read once for each step."""
    image: Image | None
    kv: Kv


class Explanation(Struct, frozen=True, kw_only=True):
    """All of it; the same as JSON."""

    processor: Processor
    threads: Threads
    device: str
    device_why: str
    numerics: str
    """What results depend on besides weights."""
    memory_free_bytes: int
    model: Model | None = None
    model_why: str = ""
    """Why nothing is said of the model, where one was asked for."""


class _Explain(click.Command):
    """`tercet explain cache ...` is a command of its own; a model cannot be called so."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if args[:1] == ["cache"]:
            from tercet.cli.explain_cache import command as cache  # only for who asks

            return cache.make_context(f"{info_name} cache", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)


@click.command(cls=_Explain)
@click.argument("model", required=False)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@local_options
def command(model: str | None, *, as_json: bool, **options: object) -> None:
    """Say what this machine can do, and what MODEL would use; nothing is fetched or built.

    `tercet explain cache`: from how many tokens on fetching keys and values beats computing them.
    """
    found = explain(local_config(model or "cost:tiny", options), named=model is not None)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        click.echo("\n".join(shown(found)))


def explain(config: TreeConfig, *, named: bool) -> Explanation:
    """What would be used under this configuration; of the model only if it is `named`."""
    weighty = not named or has_weights(config.model)
    kind = resolve_device(config.runtime.device, has_weights=weighty)
    device = choose_device(kind, has_weights=weighty, cost=config.cost)
    model, why = None, ""
    if named:
        why = _why_not(config)
        model = None if why else _model(config, device)
    return Explanation(
        processor=_processor(),
        threads=_threads(config),
        device=device.name,
        device_why=_device_why(config, device.name),
        numerics=device.numerics_id(),
        memory_free_bytes=free_memory(),
        model=model,
        model_why=why,
    )


def _processor() -> Processor:
    usable = usable_isas()
    return Processor(
        name=_processor_name(Path("/proc/cpuinfo")),
        isas=usable,
        isa=chosen_isa() if usable else None,
        forced=bool(os.environ.get(ISA_VARIABLE)),
    )


def _processor_name(path: Path) -> str:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else os.uname().machine


def _threads(config: TreeConfig) -> Threads:
    cores, asked, replicas = count_cores(), config.runtime.threads, config.runtime.num_executors
    if asked is not None:
        return Threads(count=asked, why="as set (--threads)", cores=cores)
    limits = [f"{cores.online} cores are online"]
    if cores.affinity < cores.online:
        limits.append(f"the process may run on {cores.affinity} of them")
    if cores.quotas:
        limits.append(f"control groups grant the time of {min(cores.quotas):g}")
    if replicas > 1:
        limits.append(f"{replicas} executors share them")
    return Threads(count=threads_each(replicas, cores.usable), why=", ".join(limits), cores=cores)


def _device_why(config: TreeConfig, chosen: str) -> str:
    if chosen == "reference" and native() is None and config.runtime.device != "reference":
        return f"{MISSING}; until then NumPy serves"
    if config.runtime.device == "auto":
        kinds = {"cpu": "weights, and a compiled native device", "cost": "a model without weights"}
        return f"auto: {kinds.get(chosen, chosen)}"
    return f"as set (--device {config.runtime.device})"


def _why_not(config: TreeConfig) -> str:
    """Why nothing can be said of the model without fetching it; empty if it is in place."""
    entry = find_model(config.model)
    if entry is not None:
        known = {one.name: one for one in list_models(cache_of(config))}[entry.name]
        return (
            "" if known.present else f"not fetched yet ({_size(known.size)}, {entry.requirement})"
        )
    local = not has_weights(config.model) or ":" in config.model
    if local or Path(config.model).expanduser().exists():
        return ""
    if "/" in config.model and not config.model.startswith(("/", ".", "~")):
        return "a repository of the Hugging Face hub is fetched when it is first used"
    raise Invalid(f"{config.model!r} is no model that can be found.", code="model_not_found")


def _model(config: TreeConfig, device: Device) -> Model:
    if not has_weights(config.model):
        raise Invalid(f"{config.model!r} has no weights: there is nothing to explain of it.")
    cache = cache_of(config)
    plan = plan_model(
        config.model,
        cache=cache,
        packer=device.packer(),
        quantization=config.runtime.quantization,
    )
    if plan.wanted is None:
        raise Invalid(f"{config.model!r} has no image.")
    header = plan_image(plan.wanted)
    path = Shelf(cache).path(plan.wanted.key)
    shape = plan.checkpoint.facts().shape
    weights = _groups(header.weights)
    return Model(
        name=plan.located.name,
        location=plan.located.location,
        layers=shape.num_layers,
        context_max=shape.context_max,
        weights=weights,
        weight_bytes=sum(group.size_bytes for group in weights),
        image=Image(path=str(path), size_bytes=header.size, present=path.exists()),
        kv=_kv(config, device, plan),
    )


def _groups(weights: tuple[Stored, ...]) -> list[WeightGroup]:
    """Formats and bytes of each kind of weight; what is shared counts where it comes first."""
    formats: dict[str, dict[str, None]] = {name: {} for name in GROUPS}
    sizes = dict.fromkeys(GROUPS, 0)
    seen: dict[int, None] = {}
    for one in weights:
        group = _group(one)
        formats[group][one.format.value] = None
        sizes[group] += 0 if one.offset in seen else one.size
        seen[one.offset] = None
    return [
        WeightGroup(name=name, formats=list(found), size_bytes=sizes[name])
        for name, found in formats.items()
        if found
    ]


def _group(one: Stored) -> str:
    if one.name in {"embedding", "head"}:
        return one.name
    if len(one.shape) < 2 or (one.format is Format.F32 and "norm" in one.name):
        return "norms and biases"
    last = one.name.rpartition(".")[2]
    return "feed-forward" if last.startswith(("gate", "up", "down")) else "attention"


def _kv(config: TreeConfig, device: Device, plan: ModelPlan) -> Kv:
    shape = plan.checkpoint.facts().shape
    form = device.kv_form(plan.program, CompileOptions(kv_dtype=config.runtime.kv_dtype))
    context = min(shape.context_max, config.context_max or shape.context_max)
    budget = plan_memory(
        block_bytes=form.block_bytes,
        context_max=context,
        replicas=config.runtime.num_executors,
        fraction=config.runtime.memory_fraction,
        asked_bytes=config.runtime.kv_cache_memory_bytes,
        free_bytes=free_memory(),
    )
    return Kv(
        dtype=form.dtype,
        bytes_per_token=form.block_bytes // BLOCK_TOKENS,
        context_max=context,
        context_bytes=-(-context // BLOCK_TOKENS) * form.block_bytes,
        arena_bytes=budget.arena_bytes,
        arena_tokens=budget.num_blocks * BLOCK_TOKENS,
    )


def shown(found: Explanation) -> list[str]:
    """The explanation for people, line by line."""
    lines = _table(
        {
            "processor": found.processor.name,
            "instructions": _instructions(found.processor),
            "threads": f"{found.threads.count}: {found.threads.why}",
            "memory": f"{_size(found.memory_free_bytes)} free",
            "device": f"{found.device} ({found.device_why})",
            "numerics": found.numerics,
        }
    )
    if found.model_why:
        lines += ["", *_table({"model": found.model_why})]
    return lines if found.model is None else [*lines, "", *_model_lines(found.model)]


def _instructions(processor: Processor) -> str:
    if processor.isa is None:
        return "none: the native device is missing"
    others = ", ".join(one for one in processor.isas if one != processor.isa)
    how = f"set by {ISA_VARIABLE}" if processor.forced else "the best of this machine"
    return f"{processor.isa} ({how}{f'; also {others}' if others else ''})"


def _model_lines(model: Model) -> list[str]:
    rows: dict[str, str] = {
        "model": f"{model.name}: {model.layers} layers, contexts of {model.context_max} tokens",
        "from": model.location,
    }
    for group in model.weights:
        rows[group.name] = f"{' + '.join(group.formats):<14} {_size(group.size_bytes)}"
    rows["all weights"] = f"{'':<14} {_size(model.weight_bytes)}, read once a step"
    if model.image is not None:
        state = "in place" if model.image.present else "to be built at the first start"
        rows["image"] = f"{_size(model.image.size_bytes)}, {state}: {model.image.path}"
    kv = model.kv
    rows["keys, values"] = (
        f"{kv.dtype}, {kv.bytes_per_token} bytes a token, "
        f"{_size(kv.context_bytes)} for {kv.context_max} tokens"
    )
    rows["KV of a server"] = f"{_size(kv.arena_bytes)} an executor: {kv.arena_tokens} tokens"
    return _table(rows)


def _table(rows: Mapping[str, str]) -> list[str]:
    return [f"{name:<17}{text}" for name, text in rows.items()]


def _size(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
