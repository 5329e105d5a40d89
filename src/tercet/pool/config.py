"""What can be set of a host's share of the pool."""

from dataclasses import dataclass

from tercet.base.errors import Invalid
from tercet.base.ids import BLOCK_TOKENS

UNIT_BYTES = 4096
"""Values lie at multiples of this: what disks read and write at least."""
SEGMENT_BYTES_MAX = 16 << 30
POLICIES = ("lru", "adaptive")


@dataclass(frozen=True, kw_only=True)
class Quota:
    """What a namespace may fill of each tier of each host; beyond, its own values go."""

    namespace: str
    dram_bytes: int
    disk_bytes: int = 0

    def __post_init__(self) -> None:
        if self.dram_bytes < 0 or self.disk_bytes < 0:
            raise Invalid(
                f"The quota of {self.namespace!r} is {self.dram_bytes} and {self.disk_bytes}; "
                "expected bytes, 0 or more.",
                parameter="quotas",
            )


@dataclass(frozen=True, kw_only=True)
class PoolConfig:
    """One host's share; every value is checked when it is made."""

    dram_bytes: int = 0
    """Memory of the share, brought in before it is used; 0: this host keeps no share."""
    disk_path: str | None = None
    """The file of the share on disk, with another of labels beside it; absent: none."""
    disk_bytes: int = 0
    """Of both."""
    value_tokens: int = 128
    """Tokens whose KV one value holds."""
    quotas: tuple[Quota, ...] = ()
    policy: str = "lru"
    """What goes first when there is no room: `lru`, or `adaptive` (what came once goes before
    what came again; how much of either stays is learned from what was missed)."""
    watermark: float = 1.0
    """A tier is filled up to this part, and what is oldest goes beyond it."""
    lease_s: float = 10.0
    """Values that were asked for are held still for so long."""
    ask_s: float = 2.0
    """What was found is remembered for so long until it is wanted."""
    answer_s: float = 0.2
    """An agent that has not answered a question by then has nothing."""
    want_s: float = 2.0
    """Values that were not brought by then cannot be had."""
    put_s: float = 5.0
    """A value that has not come by then is not stored."""
    moves_max: int = 64
    """Moves into the share at one time; further puts wait."""
    puts_max: int = 4096
    """Values that wait to be stored; more are refused."""
    rehome_batch: int = 16
    """Values that are offered to a new home at one time."""

    def __post_init__(self) -> None:
        if self.dram_bytes < 0 or (self.dram_bytes and self.dram_bytes < UNIT_BYTES):
            raise Invalid(
                f"dram_bytes is {self.dram_bytes}; expected 0 or at least {UNIT_BYTES}.",
                parameter="dram_bytes",
            )
        if self.disk_bytes < 0:
            raise Invalid(
                f"disk_bytes is {self.disk_bytes}; expected 0 or more.", parameter="disk_bytes"
            )
        if bool(self.disk_bytes) != bool(self.disk_path):
            raise Invalid(
                "disk_path and disk_bytes go together: a file and its size.",
                parameter="disk_path",
            )
        if self.disk_bytes and not self.dram_bytes:
            raise Invalid(
                "A share on disk takes memory too: values pass through it.",
                parameter="dram_bytes",
            )
        if self.value_tokens < BLOCK_TOKENS or self.value_tokens % BLOCK_TOKENS:
            raise Invalid(
                f"value_tokens is {self.value_tokens}; expected a multiple of {BLOCK_TOKENS}.",
                parameter="value_tokens",
            )
        if self.policy not in POLICIES:
            raise Invalid(
                f"policy is {self.policy!r}; expected one of {', '.join(POLICIES)}.",
                parameter="policy",
            )
        if not 0.1 <= self.watermark <= 1:
            raise Invalid(
                f"watermark is {self.watermark}; expected 0.1 to 1.", parameter="watermark"
            )
        self._check_bounds()

    def _check_bounds(self) -> None:
        for name in ("lease_s", "ask_s", "answer_s", "want_s", "put_s"):
            value = getattr(self, name)
            if not 0 < value < 1e6:
                raise Invalid(f"{name} is {value}; expected a positive number.", parameter=name)
        for name in ("moves_max", "puts_max", "rehome_batch"):
            count = getattr(self, name)
            if count < 1:
                raise Invalid(f"{name} is {count}; expected at least 1.", parameter=name)
        names = [quota.namespace for quota in self.quotas]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise Invalid(f"The quota of {twice[0]!r} is given twice.", parameter="quotas")

    @property
    def segments(self) -> tuple[int, ...]:
        """Sizes of the memory segments, first to last."""
        whole, rest = divmod(self.dram_bytes // UNIT_BYTES * UNIT_BYTES, SEGMENT_BYTES_MAX)
        return (SEGMENT_BYTES_MAX,) * whole + ((rest,) if rest else ())

    @property
    def on(self) -> bool:
        """Whether this host keeps a share."""
        return self.dram_bytes > 0
