"""The relational tensor cache: one index over tokens and names, copies in several memories.

    match_by_prefix, match_by_id      what is here, and where the rest is said to be
    populate, query_populate          bring values here, by ticket
    alloc_blocks, append_block        room for a prefill, for a decode
    copy                              values for another memory
    free                              whatever was given out

The calls of DeepServe's table 1, and two plans that a machine looks at in the background:
`swap_plan` (what is about to go and lies nowhere else) and `prefetch_plan` (who waits for what lies
elsewhere). Nothing here moves a byte: `populate` and `copy` give what is to be moved, the machine
asks its driver and says by `moved` what came of it. `Cache`, which a scheduler uses step by step,
is the same blocks and the same index; this door adds what lies beyond one arena.

    value | block 0 | block 1 | ... | block n-1 |     values are runs of full blocks, named by the
                                             ^ key    chain key at their end
"""

from array import array
from collections.abc import Container, Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS, BlockId
from tercet.cache.cache import Cache, Holding
from tercet.cache.copies import Copies
from tercet.cache.economy import Economy
from tercet.cache.names import Names, Tail

NUM_NAMES_MAX = 4096
NUM_TICKETS_MAX = 1024
PINNED_SHARE_MAX = 0.5
"""Of all blocks."""


class Match(Struct, frozen=True, kw_only=True):
    """What is known of a sequence of tokens."""

    tokens: "array[int]"
    num_here: int
    """Leading blocks that can be held now."""
    elsewhere: tuple[tuple[str, ...], ...]
    """For each value from the first that is not wholly here, as a leading run: who is said to
    have it."""
    tail: Tail | None = None
    """Of a pinned context: the partial block behind the full ones."""


class Fetch(Struct, frozen=True, kw_only=True):
    """A value that is to be moved into own blocks."""

    ticket: int
    place: int
    """Of the value in its populate, from 0."""
    key: bytes
    source: str
    blocks: tuple[BlockId, ...]
    lives: bytes
    """u4: that the blocks begin with this."""


class Store(Struct, frozen=True, kw_only=True):
    """A value for another memory: nobody holds its blocks for that, their lives are the fence."""

    key: bytes
    units: bytes
    """i4: indices in the arena."""
    lives: bytes
    """u4"""


class PopulateState(StrEnum):
    UNDER_WAY = "under_way"
    DONE = "done"
    """All that was asked for is indexed."""
    SHORT = "short"
    """Some did not come; what came before it is indexed."""


class Progress(Struct, frozen=True):
    state: PopulateState
    num_here: int
    """Leading blocks of the sequence that are indexed now."""


class _Populate:
    """One ticket."""

    __slots__ = ("first", "holding", "keys", "landed", "num_under_way", "sources", "tokens")

    def __init__(self, holding: Holding, tokens: "array[int]", first: int) -> None:
        self.holding = holding
        self.tokens = tokens
        self.first = first
        """Blocks before the first value."""
        self.keys: list[bytes] = []
        self.sources: list[str] = []
        self.landed: list[bool | None] = []
        """Of each value: whether it is good; None: under way."""
        self.num_under_way = 0


class Rtc:
    """Everything that one executor knows of KV; `value_tokens` is the size of values elsewhere."""

    def __init__(self, cache: Cache, *, value_tokens: int) -> None:
        must(value_tokens > 0 and value_tokens % BLOCK_TOKENS == 0, f"values of {value_tokens}")
        self.cache = cache
        self.copies = Copies()
        self.economy = Economy()
        self.names = Names(
            cache,
            num_names_max=NUM_NAMES_MAX,
            num_pinned_max=int(PINNED_SHARE_MAX * cache.pool.total),
        )
        self._value_tokens = value_tokens
        self._per_value = value_tokens // BLOCK_TOKENS
        self._populates: dict[int, _Populate] = {}
        self._next_ticket = 0

    # what is there

    def match_by_prefix(self, namespace: str, tokens: "array[int]") -> Match:
        """Find the longest leading part of tokens, here and behind that elsewhere. Nothing is held
        by it; the last token is never part of a match: one is left to compute.
        """
        num_here, _ = self.cache.peek(namespace, tokens)
        first = num_here // self._per_value
        places: list[tuple[str, ...]] = []
        for key in self.keys(namespace, tokens)[first:]:
            known = self.copies.places(key)
            if not known:
                break
            places.append(known)
        return Match(tokens=tokens, num_here=num_here, elsewhere=tuple(places))

    def match_by_id(self, namespace: str, name: str) -> Match | None:
        """Find a context by the name that it was given, whatever of it is still where."""
        named = self.names.get(namespace, name)
        if named is None:
            return None
        # A named context is a prefix of what will be asked: its own last token is one of it.
        found = self.match_by_prefix(namespace, named.tokens + _ONE_MORE)
        return Match(
            tokens=named.tokens,
            num_here=found.num_here,
            elsewhere=found.elsewhere,
            tail=named.tail,
        )

    # bringing it here

    def populate(
        self, namespace: str, tokens: "array[int]", *, count: int, spare: int = 0
    ) -> tuple[int, list[Fetch]] | None:
        """Reserve blocks for the next `count` values of the tokens that are said to be elsewhere,
        and give a ticket and what is to be moved; None where there is no room beside `spare`
        blocks, or nothing to bring.
        """
        first = self.match_by_prefix(namespace, tokens).num_here // self._per_value
        keys = self.keys(namespace, tokens)[first : first + count]
        sources = [self.copies.places(key)[:1] for key in keys]
        known = next((at for at, one in enumerate(sources) if not one), len(sources))
        if not known or len(self._populates) >= NUM_TICKETS_MAX:
            return None
        start = first * self._per_value
        holding = self.cache.hold(namespace, tokens[: start * BLOCK_TOKENS + 1])
        needed = known * self._per_value
        if (
            needed + spare > self.cache.available
            or len(holding.table) < start
            or self.cache.extend(holding, needed) is None
        ):
            self.cache.release(holding, tokens, computed=0, index=False)
            return None
        self._next_ticket += 1
        one = self._populates[self._next_ticket] = _Populate(holding, tokens[:], start)
        one.keys, one.sources = keys[:known], [source[0] for source in sources[:known]]
        one.landed = [None] * known
        one.num_under_way = known
        return self._next_ticket, list(self._fetches(self._next_ticket, one))

    def _fetches(self, ticket: int, one: _Populate) -> Iterator[Fetch]:
        for place, (key, source) in enumerate(zip(one.keys, one.sources, strict=True)):
            begin = one.first + place * self._per_value
            blocks = one.holding.table[begin : begin + self._per_value]
            yield Fetch(
                ticket=ticket,
                place=place,
                key=key,
                source=source,
                blocks=tuple(blocks),
                lives=self.cache.pool.lives(blocks),
            )

    def moved(self, ticket: int, place: int, *, good: bool) -> None:
        """A value of a populate came, verified, or did not: then nobody looks for it there."""
        one = self._land(ticket, place, good=good)
        if not good:
            self.copies.lost(one.keys[place], one.sources[place])
        end = one.first + self._per_value * self._leading(one)
        self.cache.commit(one.holding, one.tokens, computed=BLOCK_TOKENS * end)

    def skip(self, ticket: int, place: int) -> None:
        """A value of a populate will not be moved; it may still be where it is said to be."""
        self._land(ticket, place, good=False)

    def _land(self, ticket: int, place: int, *, good: bool) -> _Populate:
        one = self._populates[ticket]
        must(one.landed[place] is None, f"value {place} of populate {ticket} came twice")
        one.landed[place] = good
        one.num_under_way -= 1
        return one

    @staticmethod
    def _leading(one: _Populate) -> int:
        return next((at for at, good in enumerate(one.landed) if not good), len(one.landed))

    def query_populate(self, ticket: int) -> Progress:
        """Say how far a populate is; its blocks are held until it is freed."""
        one = self._populates[ticket]
        leading = self._leading(one)
        state = PopulateState.UNDER_WAY
        if not one.num_under_way:
            whole = leading == len(one.landed)
            state = PopulateState.DONE if whole else PopulateState.SHORT
        return Progress(state, one.first + self._per_value * leading)

    # room

    def alloc_blocks(self, namespace: str, tokens: "array[int]") -> Holding | None:
        """Hold what is here of the tokens and take blocks for the rest of them; None: no room."""
        holding = self.cache.hold(namespace, tokens)
        missing = -(-len(tokens) // BLOCK_TOKENS) - len(holding.table)
        if self.cache.extend(holding, missing) is None:
            self.cache.release(holding, tokens, computed=0, index=False)
            return None
        return holding

    def append_block(self, holding: Holding) -> BlockId | None:
        """Take one more block for a sequence that grew; None: no room."""
        blocks = self.cache.extend(holding, 1)
        return None if blocks is None else blocks[0]

    # to other memories

    def copy(self, holding: Holding, tokens: "array[int]", *, computed: int) -> list[Store]:
        """Give the values of a sequence that are computed and, as far as is known, nowhere else."""
        if holding.num_borrowed:
            return []
        whole = tokens[: computed // self._value_tokens * self._value_tokens]
        keys = self.cache.keys_for(holding.namespace, whole, self._value_tokens)
        return [
            self._store(key, holding.table[at * self._per_value : (at + 1) * self._per_value])
            for at, key in enumerate(keys)
            if key not in self.copies
        ]

    def swap_plan(
        self, wanted: Container[bytes], *, num_blocks: int
    ) -> Iterator[tuple[str, Store]]:
        """Give the values (with their namespaces) that are wanted, lose their last block with the
        next evictions and are, as far as is known, nowhere else; next to go first.
        """
        for node in self.cache.oldest(num_blocks):
            if node.key in wanted and node.key not in self.copies:
                namespace, path = self.cache.path_to(node)
                if len(path) % self._per_value == 0:
                    blocks = [one.block for one in path[-self._per_value :]]
                    yield namespace, self._store(node.key, blocks)

    def _store(self, key: bytes, blocks: Sequence[BlockId]) -> Store:
        units, lives = self.cache.refs(blocks)
        return Store(key=key, units=units, lives=lives)

    def prefetch_plan(
        self, waiting: "Iterable[tuple[str, array[int]]]", *, spare: int
    ) -> Iterator[int]:
        """Give the places of those that wait, first come first, whose values are said to be
        elsewhere while there is room for them beside `spare` blocks; whoever waits in vain for room
        ends the round.
        """
        room = self.cache.available - spare
        for place, (namespace, tokens) in enumerate(waiting):
            count = len(self.match_by_prefix(namespace, tokens).elsewhere)
            room -= count * self._per_value
            if room < 0:
                return
            if count:
                yield place

    # and back

    def free(
        self, what: Holding | int, tokens: "array[int] | None" = None, computed: int = 0
    ) -> None:
        """Give back a holding (what its first `computed` tokens fill stays cached) or a ticket
        whose moves have all ended (what came stays cached).
        """
        if isinstance(what, Holding):
            rest = array("i") if tokens is None else tokens
            self.cache.release(what, rest, computed=computed, index=tokens is not None)
            return
        one = self._populates.pop(what)
        must(not one.num_under_way, f"populate {what} is freed while moves write to its blocks")
        self.cache.release(one.holding, one.tokens, computed=0, index=False)

    @property
    def num_populates(self) -> int:
        """Tickets that hold blocks."""
        return len(self._populates)

    def held_blocks(self) -> Iterator[BlockId]:
        """Go through the blocks that tickets and pins hold, each as often as it is held."""
        for one in self._populates.values():
            yield from one.holding.table
        yield from self.names.held_blocks()

    def keys(self, namespace: str, tokens: "array[int]") -> list[bytes]:
        """Give the keys of the values that a task with these tokens could use."""
        count = max(len(tokens) - 1, 0) // self._value_tokens
        return self.cache.keys_for(
            namespace, tokens[: count * self._value_tokens], self._value_tokens
        )


_ONE_MORE = array("i", [0])
"""A match leaves one token to compute; of a named context none has to be left."""
