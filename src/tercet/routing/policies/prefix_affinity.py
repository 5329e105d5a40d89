"""The executor that has most of a prompt already, as long as it is not too busy for that.

What each executor has is guessed: the keys of the blocks of prompts that were sent to it, at most
as many as it has blocks, the least recently used going first. A key names a block and all that lies
before it (`cache.identity`), so a prefix tree needs no tree: a prefix is there as far as its keys.

It is here to be compared with: where executors can reach each other's blocks and the pool's, the
least loaded one does without any of this.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from tercet.base.ids import BLOCK_TOKENS, ExecutorId
from tercet.cache.identity import keys_of, root_key
from tercet.routing.policies.least_load import TASK_TOKENS
from tercet.routing.view import ExecutorView


def prompt_keys(namespace: str, model: str, tokens: Sequence[int]) -> list[bytes]:
    """Give the keys of a prompt's full blocks: the same prompt, the same keys, and no other's."""
    return keys_of(tokens, root_key(namespace, model))


class PrefixAffinity:
    """Remembers what was sent where."""

    def __init__(self) -> None:
        self._keys: dict[ExecutorId, dict[bytes, None]] = {}
        """Of each executor, the least recently used first."""

    def choose(self, view: Iterable[ExecutorView], keys: Sequence[bytes]) -> ExecutorId | None:
        """Name the executor with the longest prefix, unless what waits before it there is more
        than the prefix saves; among equals the longer prefix, then the lower id.
        """
        best: ExecutorId | None = None
        least = (0, 0, 0)
        for seen in view:
            saved = BLOCK_TOKENS * self.matched(seen.executor, keys)
            load = seen.num_tokens + TASK_TOKENS * seen.num_tasks
            rank = (load - saved, -saved, seen.executor)
            if best is None or rank < least:
                best, least = seen.executor, rank
        return best

    def matched(self, executor: ExecutorId, keys: Sequence[bytes]) -> int:
        """Give how many leading blocks the executor should have."""
        there = self._keys.get(executor, {})
        for number, key in enumerate(keys):
            if key not in there:
                return number
        return len(keys)

    def placed(self, executor: ExecutorId, keys: Sequence[bytes], *, num_blocks: int) -> None:
        """Take note of a prompt that was sent to an executor of so many blocks."""
        there = self._keys.setdefault(executor, {})
        for key in reversed(keys):  # so that the end of a prefix goes before its beginning
            there.pop(key, None)
            there[key] = None
        for key in list(islice(there, max(0, len(there) - num_blocks))):
            del there[key]

    def gone(self, executor: ExecutorId) -> None:
        """Its cache is gone with it."""
        self._keys.pop(executor, None)
