"""What can be set of a process tree, and the whole that the composition roots put together."""

from dataclasses import dataclass, field, replace
from typing import Literal

from tercet.api.config import ApiConfig
from tercet.base.errors import Invalid
from tercet.cluster_manager.config import ClusterManagerConfig
from tercet.devices.cost.config import CostConfig
from tercet.job_executor.config import JobExecutorConfig
from tercet.messages.wire import Role
from tercet.node_agent.config import NodeAgentConfig
from tercet.observe.config import ObserveConfig
from tercet.pool.config import PoolConfig
from tercet.scheduling.config import SchedulingConfig
from tercet.task_executor.config import TaskExecutorConfig
from tercet.transfer.config import TransferConfig

EXECUTORS_MAX = 64
CHAT_TEMPLATE_BYTES_MAX = 4 << 20
"""Every process of the tree gets a copy."""
KvDtype = Literal["auto", "bf16", "int8", "float32"]
Quantization = Literal["auto", "none", "int8", "int4"]
FaultKind = Literal["raise", "exit", "sleep", "spin", "hold_gil"]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A misbehaviour below the device seam, for tests: what happens, and when.

    It happens in the step numbered `step` of an executor, or whenever a step computes `token`; on
    executor `executor` only, if that is given.
    """

    kind: FaultKind
    step: int | None = None
    token: int | None = None
    executor: int | None = None


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """The process tree of one host."""

    host: str = "127.0.0.1"
    """Where HTTP listens."""
    port: int = 8000
    """0: any free one."""
    prefill: int = 0
    """Task executors that compute prompts for others."""
    decode: int = 0
    """Task executors that have others compute their prompts."""
    replicas: int | None = None
    """Task executors that do both; absent: 1 if there are no others, else 0."""
    device: str = "auto"
    """A name of `devices.choose`: `auto`, `cpu`, `cost` (made-up tokens), ..."""
    quantization: Quantization = "auto"
    """How matrices are stored; `auto`: as the model's files hold them."""
    kv_dtype: KvDtype = "auto"
    """How keys and values are kept; `auto`: the device's choice."""
    threads: int | None = None
    """Threads of each executor's device; absent: the cores that this host
    grants (affinity, quotas of control groups), divided by the executors."""
    kv_cache_memory_bytes: int | None = None
    """KV memory of each executor; absent: from the budget (`memory_budget`)."""
    memory_fraction: float = 0.5
    """How much of the memory that is free at start KV arenas may take, all together."""
    shutdown_timeout_s: float = 30.0
    """After the first SIGTERM, running jobs may take so long to finish."""
    cluster_address: str | None = None
    """HOST:PORT where other hosts join this tree; absent: none can."""
    cluster_secret_file: str | None = None
    """What all hosts of the cluster know, in a file of at least 16 bytes."""
    hosts: int = 1
    """So many hosts share the executors; the first waits for the others before it starts any."""
    data_address: str | None = None
    """Where this host's memories are served to other hosts; absent: only within the host."""
    data_bytes_per_s: float = 0.0
    """For tests and demonstrations: what the wire between hosts lets through; 0: all."""
    data_latency_s: float = 0.0
    """The same: what it adds before each answer."""
    record: str | None = None
    """An empty or new folder where every machine's recording goes."""
    check: bool = False
    """Check the machines' invariants whenever they are idle."""
    faults: tuple[Fault, ...] = ()
    """For tests only."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise Invalid(f"port is {self.port}; expected 0 to 65535.", parameter="port")
        self._check_roles()
        self._check_cluster()
        if self.threads is not None and self.threads < 1:
            raise Invalid(f"threads is {self.threads}; expected at least 1.", parameter="threads")
        if self.kv_cache_memory_bytes is not None and self.kv_cache_memory_bytes < 1:
            raise Invalid(
                f"kv_cache_memory_bytes is {self.kv_cache_memory_bytes}; expected at least 1.",
                parameter="kv_cache_memory_bytes",
            )
        if not 0 < self.memory_fraction < 1:
            raise Invalid(
                f"memory_fraction is {self.memory_fraction}; expected between 0 and 1.",
                parameter="memory_fraction",
            )
        if not 0 <= self.shutdown_timeout_s < 1e9:
            raise Invalid(
                f"shutdown_timeout_s is {self.shutdown_timeout_s}; expected 0 or more.",
                parameter="shutdown_timeout_s",
            )

    @property
    def counts(self) -> dict[Role, int]:
        """How many executors of each role there shall be at first."""
        colocated = self.replicas
        if colocated is None:
            colocated = 0 if self.prefill or self.decode else 1
        return {Role.PREFILL: self.prefill, Role.DECODE: self.decode, Role.COLOCATED: colocated}

    @property
    def num_executors(self) -> int:
        """Executors of all roles, who share cores and memory."""
        return sum(self.counts.values())

    @property
    def num_here(self) -> int:
        """Executors that share the cores and the memory of one host."""
        return -(-self.num_executors // self.hosts)

    @property
    def has_peers(self) -> bool:
        """Whether an executor is not alone."""
        return self.num_executors > 1 or self.data_address is not None

    def _check_cluster(self) -> None:
        if not 1 <= self.hosts <= 1024:
            raise Invalid(f"hosts is {self.hosts}; expected 1 to 1024.", parameter="hosts")
        if self.cluster_address is not None and self.cluster_secret_file is None:
            raise Invalid(
                "A tree that hosts can join needs a secret that they know: cluster_secret_file.",
                parameter="cluster_secret_file",
            )

    def _check_roles(self) -> None:
        for name in ("prefill", "decode", "replicas"):
            count = getattr(self, name)
            if count is not None and not 0 <= count <= EXECUTORS_MAX:
                raise Invalid(f"{name} is {count}; expected 0 to {EXECUTORS_MAX}.", parameter=name)
        if not 1 <= self.num_executors <= EXECUTORS_MAX:
            raise Invalid(
                f"{self.num_executors} executors are asked for; expected 1 to {EXECUTORS_MAX} of "
                "all roles together.",
                parameter="replicas",
            )


@dataclass(frozen=True, kw_only=True)
class TreeConfig:
    """Everything that the processes of one tree need; composed by `cli` and `llm` alone."""

    model: str
    """A source as `models.open_model` takes it."""
    cache_folder: str
    """The model cache."""
    images_bytes_max: int = 20_000_000_000
    """Size of all model images: beyond, those that are not in use go before one is built."""
    served_names: tuple[str, ...] = ()
    """What clients may call the model; none: its own name."""
    chat_template: str | None = None
    """Text of a template that replaces the model's own."""
    image: str = ""
    """Key of the model's image, which this host lends to others that join; empty: it does not."""
    weights: str = ""
    """What all hosts of a cluster must serve: a digest of the model's weights, or the name of a
    model that has none; empty: nobody looks."""
    context_max: int | None = None
    """Serve shorter contexts than the model's."""
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
    job_executor: JobExecutorConfig = field(default_factory=JobExecutorConfig)
    task_executor: TaskExecutorConfig = field(default_factory=TaskExecutorConfig)
    scheduling: SchedulingConfig = field(default_factory=SchedulingConfig)
    cluster_manager: ClusterManagerConfig = field(default_factory=ClusterManagerConfig)
    cost: CostConfig = field(default_factory=CostConfig)
    observe: ObserveConfig = field(default_factory=ObserveConfig)
    node_agent: NodeAgentConfig = field(default_factory=NodeAgentConfig)
    transfer: TransferConfig = field(default_factory=TransferConfig)
    pool: PoolConfig = field(default_factory=PoolConfig)

    def __post_init__(self) -> None:
        if self.images_bytes_max < 0:
            raise Invalid(
                f"images_bytes_max is {self.images_bytes_max}; expected 0 or more.",
                parameter="images_bytes_max",
            )
        size = len((self.chat_template or "").encode())
        if size > CHAT_TEMPLATE_BYTES_MAX:
            raise Invalid(
                f"The chat template has {size} bytes; at most {CHAT_TEMPLATE_BYTES_MAX} are "
                "served.",
                parameter="chat_template",
            )


def with_counts(config: TreeConfig, prefill: int, decode: int, colocated: int) -> TreeConfig:
    """Give the configuration that asks for so many executors of each role."""
    runtime = replace(config.runtime, prefill=prefill, decode=decode, replicas=colocated)
    return replace(config, runtime=runtime)
