"""The door to blocks and index: a task's share of KV memory from its first match to its release.

    tokens    |  0..15  | 16..31  | 32..47  | 48..53 ....
    table     |    7    |    9    |   12    |   3           Holding.table
              `--- canonical ----'  `-- private --'
                  num_canonical=2

The first `num_canonical` blocks of a holding are those that the index names for their content; the
task holds the whole path from the root. Blocks behind them are private to the task. A block that
fills up becomes canonical unless another task indexed the same content first; then this task
indexes nothing further while it runs (so whoever holds a node holds its ancestors, and every cached
block can be evicted), and what it computed beyond joins the index at its release.

A holding may also *borrow*: blocks of another executor's arena, read in place under a lease.

    table     |    7    |   1009  |   1010  |   3           1009, 1010: ids outside this pool
              `- canon -'`---- borrowed ----'`- private --'   borrowed_at=1, num_borrowed=2

Borrowed blocks are counted, indexed and given back by nobody here, and what lies behind them is
never indexed: a node's ancestors are blocks of the same arena.

Order of use: a release makes its blocks most recent from the last to the first, and so does every
touch. So a descendant always stands before its ancestors, and the least recently used cached block
is always a leaf: eviction is O(1) and never searches.
"""

from array import array
from collections.abc import Iterator, Sequence

from msgspec import Struct

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS, BlockId
from tercet.cache.blocks import BlockPool
from tercet.cache.identity import BLOCK_BYTES, child_key
from tercet.cache.radix import Node, RadixTree


class Holding:
    """One task's table of blocks; owned by whoever got it from `Cache.hold` until `release`."""

    __slots__ = (
        "borrowed_at",
        "forked",
        "namespace",
        "num_borrowed",
        "num_canonical",
        "table",
        "tip",
    )

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.table: list[BlockId] = []
        self.num_canonical = 0
        self.tip: Node | None = None
        """Node of the last canonical block."""
        self.forked = False
        """Another task's block is the canonical one for content that this task computed; or what
        it computes lies behind borrowed blocks."""
        self.borrowed_at = 0
        self.num_borrowed = 0
        """So many blocks from place `borrowed_at` on are another executor's."""

    @property
    def own_blocks(self) -> list[BlockId]:
        """Those of the table that are this pool's."""
        if not self.num_borrowed:
            return self.table
        end = self.borrowed_at + self.num_borrowed
        return self.table[: self.borrowed_at] + self.table[end:]


class CacheStats(Struct, frozen=True, kw_only=True):
    """Counts since the start, and the sizes now."""

    free: int
    held: int
    cached: int
    total: int
    indexed: int
    tokens_asked: int
    """Tokens that matches looked up."""
    tokens_hit: int
    evictions: int


class Cache:
    """Blocks of one arena, shared by content within a namespace; O(blocks touched) a call."""

    def __init__(self, *, pool: BlockPool, fingerprint: str) -> None:
        self.pool = pool
        self._tree = RadixTree(fingerprint)
        self._tokens_asked = 0
        self._tokens_hit = 0
        self._evictions = 0

    @property
    def available(self) -> int:
        """Blocks that `extend` can give."""
        return self.pool.available

    @property
    def num_evictions(self) -> int:
        """Since the start."""
        return self._evictions

    def peek(self, namespace: str, tokens: "array[int]") -> tuple[int, int]:
        """Give (blocks that `hold` would find, those of them that nobody holds now)."""
        path = self._match(namespace, tokens)
        num_unheld = 0
        for node in reversed(path):
            if self.pool.holds(node.block):
                break
            num_unheld += 1
        return len(path), num_unheld

    def hold(self, namespace: str, tokens: "array[int]", *, share: bool = True) -> Holding:
        """Hold the longest cached prefix, at most all tokens but the last: one is left to compute.
        Without `share` nothing is looked up (such a task still leaves its blocks to others).
        """
        holding = Holding(namespace)
        if not share:
            return holding
        path = self._match(namespace, tokens)
        for node in path:
            self.pool.hold(node.block)
            holding.table.append(node.block)
        holding.num_canonical = len(path)
        holding.tip = path[-1] if path else None
        self._tokens_asked += len(tokens)
        self._tokens_hit += BLOCK_TOKENS * len(path)
        return holding

    def extend(self, holding: Holding, count: int) -> list[BlockId] | None:
        """Append `count` new blocks to the table, evicting as needed; None if there is no room,
        and then nothing has changed.
        """
        if count > self.pool.available:
            return None
        blocks = [self._take() for _ in range(count)]
        holding.table.extend(blocks)
        return blocks

    def borrow(self, holding: Holding, blocks: Sequence[BlockId]) -> None:
        """Append blocks of a lent arena behind a hit (or at the very front), once; own ones may
        follow.
        """
        must(not holding.num_borrowed, "a holding borrows twice")
        must(len(holding.table) == holding.num_canonical, "blocks are borrowed behind private ones")
        for block in blocks:
            must(not self.pool.owns(block), f"block {block} is borrowed from this pool itself")
        if blocks:
            holding.borrowed_at = len(holding.table)
            holding.num_borrowed = len(blocks)
            holding.table.extend(blocks)
            holding.forked = True

    def refs(self, blocks: Sequence[BlockId]) -> tuple[bytes, bytes]:
        """Give (places in the arena i4, lives u4) of held blocks: what a lease on them names."""
        return self.pool.indices(blocks), self.pool.lives(blocks)

    def commit(self, holding: Holding, tokens: "array[int]", *, computed: int) -> None:
        """Let others find blocks that a verified transfer filled up to `computed` tokens, exactly
        as if they had been computed here.
        """
        must(computed % BLOCK_TOKENS == 0, f"{computed} tokens came, not whole blocks")
        must(
            computed <= BLOCK_TOKENS * len(holding.table),
            f"{computed} tokens came for {len(holding.table)} blocks",
        )
        self.index(holding, tokens, computed=computed)

    def keys_for(self, namespace: str, tokens: "array[int]", value_tokens: int) -> list[bytes]:
        """Give the chain keys at the end of every full run of `value_tokens`: the names of the
        same KV anywhere else. What is indexed here is not hashed anew.
        """
        must(value_tokens > 0 and value_tokens % BLOCK_TOKENS == 0, f"values of {value_tokens}")
        step = value_tokens // BLOCK_TOKENS
        num_blocks = len(tokens) // value_tokens * step
        packed = tokens[: BLOCK_TOKENS * num_blocks].tobytes()
        path = self._tree.match(namespace, packed, num_blocks)
        keys = [node.key for node in path]
        key = keys[-1] if keys else self._tree.root_key(namespace)
        for at in range(len(keys), num_blocks):
            key = child_key(key, packed[at * BLOCK_BYTES : (at + 1) * BLOCK_BYTES])
            keys.append(key)
        return keys[step - 1 :: step]

    def oldest(self, num_blocks: int) -> Iterator[Node]:
        """Go through the next blocks to be evicted, next to go first."""
        return (self._tree.node_of(block) for block in self.pool.in_order_of_use(num_blocks))

    def path_to(self, node: Node) -> tuple[str, list[Node]]:
        """Give the namespace of an indexed block and the path to it from the first block on."""
        return self._tree.path_to(node)

    def index(self, holding: Holding, tokens: "array[int]", *, computed: int) -> None:
        """Let others find the blocks that the first `computed` tokens fill."""
        num_full = computed // BLOCK_TOKENS
        while holding.num_canonical < num_full and not holding.forked:
            at = holding.num_canonical
            content = tokens[at * BLOCK_TOKENS : (at + 1) * BLOCK_TOKENS].tobytes()
            if self._tree.child(holding.namespace, holding.tip, content) is not None:
                holding.forked = True
                return
            block = holding.table[at]
            holding.tip = self._tree.insert(holding.namespace, holding.tip, content, block=block)
            self.pool.mark_indexed(block)
            holding.num_canonical = at + 1

    def release(
        self, holding: Holding, tokens: "array[int]", *, computed: int, index: bool = True
    ) -> None:
        """Give all blocks back; those that the first `computed` tokens fill stay cached, unless
        `index` is false. The holding is empty afterwards.
        """
        pool = self.pool
        table, num_canonical = holding.own_blocks, holding.num_canonical
        full = self._index_rest(holding, tokens, computed) if index else []
        num_full = num_canonical + len(full)
        for at in range(len(table) - 1, num_canonical - 1, -1):
            block = table[at]
            pool.drop(block)
            if at < num_full and full[at - num_canonical].block != block:
                pool.touch(full[at - num_canonical].block)
        for at in range(num_canonical - 1, -1, -1):
            pool.drop(table[at])
        holding.table = []
        holding.num_canonical = 0
        holding.num_borrowed = 0
        holding.tip = None

    def _index_rest(self, holding: Holding, tokens: "array[int]", computed: int) -> list[Node]:
        """Index what is full behind the canonical blocks; give the nodes of that content."""
        num_full = computed // BLOCK_TOKENS
        must(num_full <= len(holding.table), f"{computed} tokens in {len(holding.table)} blocks")
        if holding.num_borrowed:
            return []
        nodes: list[Node] = []
        above = holding.tip
        for at in range(holding.num_canonical, num_full):
            content = tokens[at * BLOCK_TOKENS : (at + 1) * BLOCK_TOKENS].tobytes()
            node = self._tree.child(holding.namespace, above, content)
            if node is None:
                block = holding.table[at]
                node = self._tree.insert(holding.namespace, above, content, block=block)
                self.pool.mark_indexed(block)
            nodes.append(node)
            above = node
        return nodes

    def _match(self, namespace: str, tokens: "array[int]") -> list[Node]:
        num_blocks_max = max(len(tokens) - 1, 0) // BLOCK_TOKENS
        if not num_blocks_max:
            return []
        return self._tree.match(namespace, tokens.tobytes(), num_blocks_max)

    def _take(self) -> BlockId:
        if not self.pool.num_free:
            block = self.pool.oldest()
            must(block is not None, "no free block and none to evict")
            if block is not None:
                self._tree.remove(block)
                self.pool.evict(block)
                self._evictions += 1
        return self.pool.take()

    def stats(self) -> CacheStats:
        pool = self.pool
        return CacheStats(
            free=pool.num_free,
            held=pool.num_held,
            cached=pool.num_cached,
            total=pool.total,
            indexed=len(self._tree),
            tokens_asked=self._tokens_asked,
            tokens_hit=self._tokens_hit,
            evictions=self._evictions,
        )

    def check_sums(self) -> None:
        """Raise unless free + held + cached = total; O(1)."""
        self.pool.check_sums()

    def check(self) -> None:
        """Raise unless pool and index agree and every cached block can be evicted in its turn."""
        self.pool.check()
        self._tree.check()
        gone: dict[BlockId, None] = {}
        for block in self.pool.in_order_of_use():
            must(block in self._tree, f"block {block} is cached, but the index does not know it")
            for child in self._tree.node_of(block).children.values():
                must(child.block in gone, f"block {block} is older than its descendant")
            gone[block] = None
