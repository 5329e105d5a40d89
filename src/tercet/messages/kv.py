"""Blocks on their way: what executors, agents and the pool tell each other about bytes elsewhere.

    executor ──AskBlocks──▶ executor ──BlocksReady, BlocksRefused──▶ it ──ReturnBlocks──▶
    executor ──PoolFind──▶ agent ──PoolFound──▶ it ──PoolWant──▶ agent ──PoolReady──▶ it ─PoolDone─▶
    executor ──PoolPut──▶ agent ──PoolStored──▶ it

Bytes never travel in messages. Whoever owns memory is the only one that writes to it: it pulls
(`effects.Move`) what a `Strip` names, from memory that somebody lends it. So a peer that is late,
frozen or mad can make an answer late; it cannot change a byte of ours.
"""

from enum import StrEnum

from msgspec import Struct

from tercet.base.ids import Address, ExecutorId


class Way(StrEnum):
    """How a finished prefill reaches the executor that decodes."""

    REFERENCE = "reference"
    """Read where it lies: mapped memory of the same host, under a lease."""
    LAYER = "layer"
    """Copied layer by layer, while later layers are still computed."""
    REQUEST = "request"
    """Copied as a whole, once all is computed."""


class Strip(Struct, frozen=True, array_like=True):
    """Bytes of one memory: of every unit the same part.

    unit u's bytes are [start + u * stride, start + u * stride + length), in the order of `units`.
    A memory's name is `<host>/kv/<executor>` (an arena), `<host>/dram/<segment>` or
    `<host>/disk/<n>`.
    """

    memory: str
    start: int
    stride: int
    length: int
    units: bytes
    """i4"""
    lives: bytes = b""
    """u4. Of a source: the generation that each unit must be in before and after it is read; empty:
    nobody looks (the checksum of a stored value says enough). Of a target in an arena: the life
    that each block begins, stored in the directory before the first byte is written; storing it
    again (further layers) changes nothing."""

    @property
    def size(self) -> int:
        return self.length * (len(self.units) // 4)


class KvLayout(Struct, frozen=True, kw_only=True):
    """How an executor's blocks lie: what a copy depends on, and a key does not."""

    dtype: str
    """`bf16`, `int8`, `float32` or `none` (made-up tokens)."""
    block_tokens: int
    layers: int
    kv_heads: int
    """Of the whole model."""
    head_dim: int
    block_bytes: int
    tp: int = 1
    """Ranks that share the heads; each keeps kv_heads / tp of them."""
    rank: int = 0

    @property
    def layer_bytes(self) -> int:
        """Of one layer of a block: layers lie one after another in every block."""
        return self.block_bytes // self.layers


class Host(Struct, frozen=True, kw_only=True):
    """One host of the cluster."""

    name: str
    agent: Address
    data: str = ""
    """Where its memories can be read over TCP, `address:port`; empty: only on the host itself."""
    endpoints: tuple[str, ...] = ()
    """Where its agent takes connections of peers: `tcp:<address>:<port>`."""
    pooled: bool = False
    """Its agent keeps a share of the pool."""
    weights: str = ""
    """What its executors serve: a digest of the weights."""


class Reach(Struct, frozen=True, kw_only=True):
    """Where an executor can be found, and its memory."""

    host: str = ""
    endpoints: tuple[str, ...] = ()
    """Where it takes connections of peers: `unix:<abstract name>`, `tcp:<address>:<port>`."""
    memory: str = ""
    """The name of its arena."""
    blocks_at: int = 0
    """Bytes before block 0 of its arena."""
    layout: KvLayout | None = None
    fingerprint: str = ""


# executor and executor: a prefill handed over


class AskBlocks(Struct, frozen=True, kw_only=True, tag=True):
    """Compute these full blocks (or find them) and let me read them."""

    ask: int
    """Unique for the asking executor's life; answers and ends name it."""
    executor: ExecutorId
    """Who asks: its epoch is the connection's."""
    namespace: str
    fingerprint: str
    tokens: bytes
    """i4: a whole number of blocks."""
    first: int
    """So many leading blocks are not wanted: the asker has them."""
    way: Way
    alone: bool = False


class BlocksReady(Struct, frozen=True, kw_only=True, tag=True):
    """Blocks [first, first + count of units) of an ask are lent. By layer they come in several of
    these, otherwise in one; `last` ends the series.
    """

    ask: int
    memory: str
    first: int
    units: bytes
    """i4: indices in the arena."""
    lives: bytes
    """u4: their generations."""
    last: bool = True
    check: int | None = None
    """Fold of the checksums of all (block, layer) parts; None: the wire's own has to do."""
    step: int = 0
    """By layer: the lender's step in which they are computed (its layer clock tells how far it
    is); 0: they are."""
    lease_ns: int = 0
    """How long they are lent from now; `RenewLeases` says: still."""
    computed: int = 0
    """Tokens that were computed for the ask; the others the lender had."""


class BlocksRefused(Struct, frozen=True, kw_only=True, tag=True):
    """They will not come: the asker computes for itself."""

    ask: int
    reason: str


class ReturnBlocks(Struct, frozen=True, kw_only=True, tag=True):
    """The asker needs nothing of these asks any more, granted or not: leases end. Repeated and
    unknown ones are harmless.
    """

    asks: tuple[int, ...]


class RenewLeases(Struct, frozen=True, kw_only=True, tag=True):
    """The asker lives and still wants these; the answer is `LeasesStand`."""

    asks: tuple[int, ...]
    said: int = 0
    """The asker's time; the answer repeats it."""


class LeasesStand(Struct, frozen=True, kw_only=True, tag=True):
    """The lender lives; of the asks that it was told of, it knows nothing of those that are not
    named here: they are over.
    """

    asks: tuple[int, ...]
    said: int = 0
    """Of what it answers: the others stand for a lease's length from then on."""


# executor and pool, agent and agent


class PoolValue(Struct, frozen=True, array_like=True):
    """Where a value lies now."""

    source: Strip
    check: int
    """Fold of the checksums of its parts of `part_bytes` each."""


class PoolFind(Struct, frozen=True, kw_only=True, tag=True):
    """Which of these keys are stored, as a leading run?"""

    ask: int
    namespace: str
    keys: bytes
    """16 bytes each."""
    reply: Address
    """Who asks: an executor, or an agent on behalf of one."""


class PoolFound(Struct, frozen=True, kw_only=True, tag=True):
    """The leading run: for each value its tier, `d` (DRAM), `s` (SSD), and upper case where it
    lies on another host than the agent's that answers.
    """

    ask: int
    tiers: str
    bytes_each: int = 0


class PoolWant(Struct, frozen=True, kw_only=True, tag=True):
    """The first so many of what was found: hold them still until `PoolDone`, and bring what is on
    SSD to DRAM.
    """

    ask: int
    count: int


class PoolReady(Struct, frozen=True, kw_only=True, tag=True):
    """Values of an ask can be read, or (None) cannot any more."""

    ask: int
    first: int
    values: tuple[PoolValue | None, ...]
    lease_ns: int


class PoolDone(Struct, frozen=True, kw_only=True, tag=True):
    """The asker reads nothing of this ask any more."""

    ask: int
    broken: tuple[int, ...] = ()
    """Places of values of the ask whose bytes were not what their check says: they are dropped."""


class PoolPut(Struct, frozen=True, kw_only=True, tag=True):
    """Store these values; their sources are lent until `PoolStored`."""

    put: int
    namespace: str
    keys: bytes
    """16 bytes each."""
    values: tuple[PoolValue, ...]
    part_bytes: int
    reply: Address


class PoolStored(Struct, frozen=True, kw_only=True, tag=True):
    """Nothing of this put is read any more; so many values are stored now (those that were there
    already included).
    """

    put: int
    stored: int


KvMessage = (
    AskBlocks
    | BlocksReady
    | BlocksRefused
    | ReturnBlocks
    | RenewLeases
    | LeasesStand
    | PoolFind
    | PoolFound
    | PoolWant
    | PoolReady
    | PoolDone
    | PoolPut
    | PoolStored
)
