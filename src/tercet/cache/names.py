"""Contexts that were given a name: kept to be found by it, not by their tokens.

    (namespace, name) ──▶ tokens | full blocks, found by the index like others | tail |
                                  `- pinned: held, never evicted                `- pinned: held,
                                  `- not pinned: while the index has them          privately

A tail is a block that the tokens do not fill. It is nobody else's: who wants what is in it copies
it into a block of its own. Names are bounded; the least recently used one that is not pinned goes.
"""

from array import array
from collections import OrderedDict

from msgspec import Struct

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS, BlockId
from tercet.cache.cache import Cache, Holding


class Tail(Struct, frozen=True):
    """The last, partial block of a pinned context."""

    block: BlockId
    num_tokens: int


class Named:
    """One context; its tokens never change."""

    __slots__ = ("holding", "tokens")

    def __init__(self, tokens: "array[int]", holding: Holding | None) -> None:
        self.tokens = tokens
        self.holding = holding

    @property
    def tail(self) -> Tail | None:
        """What is computed behind the full blocks, if it is kept."""
        num_full, rest = divmod(len(self.tokens), BLOCK_TOKENS)
        if self.holding is None or not rest:
            return None
        return Tail(self.holding.table[num_full], rest)


class Names:
    """All names of one executor."""

    def __init__(self, cache: Cache, *, num_names_max: int, num_pinned_max: int) -> None:
        self._cache = cache
        self._num_names_max = num_names_max
        self._num_pinned_max = num_pinned_max
        """Blocks."""
        self._all: OrderedDict[tuple[str, str], Named] = OrderedDict()
        self.num_pinned = 0

    def __len__(self) -> int:
        return len(self._all)

    def get(self, namespace: str, name: str) -> Named | None:
        """Give a context and make it the most recently used."""
        named = self._all.get((namespace, name))
        if named is not None:
            self._all.move_to_end((namespace, name))
        return named

    def give(self, namespace: str, name: str, tokens: "array[int]") -> None:
        """Name tokens; a name that is in use is given anew."""
        self._put((namespace, name), Named(tokens[:], None))

    def pin(self, name: str, holding: Holding, tokens: "array[int]", *, computed: int) -> bool:
        """Name the computed tokens of a holding and keep its blocks, which the caller gives away;
        false, and nothing changes, where so many may not be pinned.
        """
        must(computed <= len(tokens), f"{computed} of {len(tokens)} tokens are computed")
        must(not holding.num_borrowed, f"{name!r} would pin blocks of others")
        key = (holding.namespace, name)
        known = self._all.get(key)
        freed = 0 if known is None or known.holding is None else len(known.holding.table)
        if self.num_pinned - freed + len(holding.table) > self._num_pinned_max:
            return False
        self._put(key, Named(tokens[:computed], holding))
        self.num_pinned += len(holding.table)
        return True

    def drop(self, namespace: str, name: str) -> None:
        """Forget a name, if there is one; its full blocks stay cached like others."""
        self._forget((namespace, name))

    def held_blocks(self) -> list[BlockId]:
        """Give the blocks that pins hold."""
        pins = (named.holding for named in self._all.values())
        return [block for pin in pins if pin is not None for block in pin.table]

    def _put(self, key: tuple[str, str], named: Named) -> None:
        self._forget(key)
        self._all[key] = named
        if len(self._all) > self._num_names_max:
            oldest = next((one for one in self._all if self._all[one].holding is None), None)
            if oldest is not None:
                self._forget(oldest)

    def _forget(self, key: tuple[str, str]) -> None:
        named = self._all.pop(key, None)
        if named is not None and named.holding is not None:
            self.num_pinned -= len(named.holding.table)
            self._cache.release(named.holding, named.tokens, computed=len(named.tokens))
