"""Scenarios as data: a cluster, a workload, a network and faults, read from TOML.

[cluster]   replicas, fronts, blocks, ...
[workload]  jobs, rate, prompt and output lengths, n, cancels, ...
[network]   latency, jitter, bandwidth, loss
[[faults]]  kind, every or at, for, ...
"""

import tomllib
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from tercet.base.errors import Invalid
from tercet.job_executor.config import Routing
from tercet.transfer.config import WayChoice

FAULT_KINDS = (
    "kill_executor",
    "hang_executor",
    "slow_executor",
    "kill_agent",
    "kill_front",
    "partition",
    "clock_step",
    "poison",
    "lose",
    "double",
    "partition_hosts",
    "kill_host",
    "slow_link",
    "corrupt",
    "disk_full",
    "change_roles",
)


class ClusterSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What serves."""

    replicas: int = 2
    """Executors that prefill and decode."""
    prefill: int = 0
    decode: int = 0
    hosts: int = 1
    fronts: int = 1
    blocks: int = 256
    slots: int = 16
    context_max: int = 512
    base_us: float = 2000.0
    """Duration of a step, and what each row, logits row and attended pair adds to it."""
    row_us: float = 50.0
    logit_us: float = 20.0
    pair_us: float = 0.05
    start_ms: float = 300.0
    """How long an executor takes from its fork to ready."""
    max_queued_jobs: int = 512
    max_waiting_tasks: int = 64
    repeat: int = 0
    """Made-up text repeats itself after so many tokens, so that guesses are right; 0: never."""
    step_floor_ms: float = 1000.0
    """The agent's bound for a step is this plus a multiple of its predicted time."""
    routing: Routing = "least_load"
    """How fronts choose executors."""
    max_tasks_per_executor: int = 0
    """Of all fronts together; 0: as many as fit its queue."""
    speculation: Literal["auto", "off"] = "auto"
    check_contents: bool = True
    """Whether every block that a step reads is looked at (I3); false: engines only count, and large
    runs of good machines are faster."""
    layers: int = 2
    """Of the model: a block is one cell of 4 KiB for each."""
    way: WayChoice = "auto"
    """How a finished prefill reaches who decodes."""
    pool_dram_mb: float = 0.0
    """Of each host; 0: there is no pool."""
    pool_disk_mb: float = 0.0
    value_tokens: int = 32
    """Tokens of a value of the pool."""


class WorkloadSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked."""

    jobs: int = 500
    rate: float = 40.0
    """Jobs a second, Poisson."""
    prompt_min: int = 1
    prompt_max: int = 120
    output_min: int = 1
    output_max: int = 40
    shared_prefix: int = 48
    """A part of the prompts begins with one of a few common texts of this length."""
    shared_share: float = 0.5
    several_share: float = 0.1
    """Jobs that ask for n = 2..4 choices."""
    cancel_share: float = 0.1
    """Jobs whose client leaves after a random time."""
    stop_share: float = 0.1
    """Jobs whose text is cut by a stop string that the front finds."""
    tenants: int = 3


class NetworkSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How messages travel. A lost packet comes late (retransmission); a cut link ends the
    connection after `cut_after_ms`, as sockets with a user timeout do.
    """

    latency_us: float = 50.0
    jitter_us: float = 100.0
    bandwidth_mb: float = 1000.0
    loss: float = 0.0
    retransmit_ms: float = 200.0
    between_hosts_us: float = 100.0
    """What comes on top of the latency between two hosts."""
    cut_after_ms: float = 800.0
    redial_ms: float = 50.0
    scale_up_mb: float = 4000.0
    """Bytes that move within a host, between two hosts in one direction, to or from a disk: so many
    MB a second each."""
    scale_out_mb: float = 100.0
    disk_mb: float = 200.0
    disk_us: float = 80.0


class FaultSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of fault: again and again (`every_ms`, on average), or once (`at_ms`)."""

    kind: str
    every_ms: float | None = None
    at_ms: float | None = None
    for_ms: float = 500.0
    """How long a hang, a slow time or a partition lasts; a step of the clock jumps so far."""
    factor: float = 20.0
    """How much slower."""
    jobs: int = 1
    """How many poison jobs there are in all."""
    share: float = 0.1
    """Of the messages about blocks: so many are lost, or come twice, in the time that it lasts."""


class Scenario(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a run needs besides its seed."""

    name: str = ""
    cluster: ClusterSpec = ClusterSpec()
    workload: WorkloadSpec = WorkloadSpec()
    network: NetworkSpec = NetworkSpec()
    faults: tuple[FaultSpec, ...] = ()
    quiet_after_s: float = 120.0
    """Virtual time after the last arrival by which everything must have ended."""


def load_scenario(path: Path) -> Scenario:
    """Read and validate a scenario file; its name is the file's."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
        scenario = msgspec.convert({"name": path.stem, **tree}, Scenario)
    except OSError as error:
        raise Invalid(f"cannot read scenario {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise Invalid(f"scenario {path.name}: {error}") from error
    validate(scenario)
    return scenario


def validate(scenario: Scenario) -> None:
    """Raise `Invalid` for numbers that make no run."""
    for fault in scenario.faults:
        if fault.kind not in FAULT_KINDS:
            raise Invalid(f"unknown fault {fault.kind!r}; known: {', '.join(FAULT_KINDS)}")
        if (fault.every_ms is None) == (fault.at_ms is None) and fault.kind != "poison":
            raise Invalid(f"fault {fault.kind!r} needs either every_ms or at_ms")
    cluster, workload = scenario.cluster, scenario.workload
    counts = (cluster.hosts, cluster.fronts, cluster.layers, workload.jobs)
    if min(counts) < 1 or cluster.replicas + cluster.decode < 1 or workload.rate <= 0:
        raise Invalid("replicas (or decode), hosts, fronts, layers, jobs and rate must be positive")
    if workload.prompt_max + workload.output_max > cluster.context_max:
        raise Invalid("prompt_max + output_max must fit context_max")
