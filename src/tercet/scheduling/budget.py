"""How much a step may hold, so that its predicted duration stays under the limit.

|<------------------------- step_ns_max ------------------------->|
| base | decoding rows, first              | prompt chunks         |
                               |<-- at least prefill_share -------->|   when prompts wait

Where the base (reading all weights) leaves less than a fifth of the limit, as it does for models
too large for the machine, no step keeps the limit and is worth its base: rows get as much time.
"""

from math import sqrt

from tercet.base.ids import BLOCK_TOKENS
from tercet.messages.plan import StepCost

_WORTH_IT = 0.2


class Budget:
    """What is left of one step; rows, logits rows and attended pairs are counted as they join."""

    __slots__ = ("_cost", "_left_ns", "_num_chunks", "_rows_left", "logits", "pairs", "rows")

    def __init__(self, cost: StepCost, *, step_ns_max: int, max_rows: int) -> None:
        self._cost = cost
        room = step_ns_max - cost.base_ns
        self._left_ns = room if room >= _WORTH_IT * step_ns_max else cost.base_ns
        self._rows_left = max_rows
        self._num_chunks = 0
        self.rows = 0
        self.logits = 0
        self.pairs = 0

    def num_decodes(self, contexts: list[int], *, keep_share: float) -> int:
        """Give how many of the first decodes fit when a share of the step is kept for others; at
        least one (a single row cannot be divided). Nothing is taken.
        """
        cost = self._cost
        each = cost.per_row_ns + cost.per_logit_ns
        limit = self._left_ns * (1.0 - keep_share)
        num_max = min(len(contexts), self._rows_left)
        if each * num_max + cost.per_pair_ns * sum(contexts[:num_max]) <= limit:
            return num_max
        count = 0
        for context in contexts[:num_max]:
            limit -= each + cost.per_pair_ns * context
            if limit < 0 and count:
                break
            count += 1
        return count

    def chunk(self, *, computed: int, known: int) -> int:
        """Give how many rows fit of the known tokens that are not computed; 0 if none should be.

        A chunk that does not reach the end stops at the end of a block where it can. The first
        chunk of a step gets at least one row, so that prompts never starve beside decodes.
        """
        wanted = min(known - computed, self._rows_left)
        if wanted <= 0:
            return 0
        fitting = min(self._fitting(computed, wanted, last=wanted == known - computed), wanted)
        if fitting < known - computed:
            end = (computed + fitting) // BLOCK_TOKENS * BLOCK_TOKENS
            if end > computed:
                fitting = end - computed
            elif self._num_chunks:
                return 0
        return max(fitting, 1)

    def _fitting(self, computed: int, wanted: int, *, last: bool) -> int:
        """Solve rows x per_row + pairs x per_pair (+ per_logit) <= what is left, for the rows.

        `rows` rows after `computed` tokens look at rows x computed + rows (rows + 1) / 2 pairs.
        """
        cost = self._cost
        left = self._left_ns - (cost.per_logit_ns if last else 0.0)
        if left <= 0:
            return 0
        linear = cost.per_row_ns + cost.per_pair_ns * (computed + 0.5)
        square = cost.per_pair_ns / 2
        if linear * wanted + square * wanted * wanted <= left:
            return wanted
        # 2c / (b + sqrt(b^2 + 4ac)): no cancellation where the square term is small.
        return int(2 * left / (linear + sqrt(linear * linear + 4 * square * left)))

    def take_decodes(self, count: int, *, pairs: int) -> None:
        """Count one row and one logits row for each."""
        self._take(rows=count, logits=count, pairs=pairs)

    def take_drafts(self, wanted: int, *, context: int) -> int:
        """Give how many rows that verify guesses fit, behind a row that looks at `context` tokens,
        and take them. They are not in the predicted duration: perhaps nothing will be guessed.
        """
        cost = self._cost
        each = cost.per_row_ns + cost.per_logit_ns + cost.per_pair_ns * (context + wanted)
        count = max(0, min(wanted, self._rows_left))
        if each * count > self._left_ns:
            count = max(0, int(self._left_ns / each))
        self._rows_left -= count
        self._left_ns -= each * count
        return count

    def take_chunk(self, rows: int, *, computed: int, samples: bool) -> None:
        """Count the rows of a chunk after `computed` tokens."""
        pairs = rows * computed + rows * (rows + 1) // 2
        self._num_chunks += 1
        self._take(rows=rows, logits=int(samples), pairs=pairs)

    def _take(self, *, rows: int, logits: int, pairs: int) -> None:
        cost = self._cost
        self.rows += rows
        self.logits += logits
        self.pairs += pairs
        self._rows_left -= rows
        self._left_ns -= (
            rows * cost.per_row_ns + logits * cost.per_logit_ns + pairs * cost.per_pair_ns
        )

    def predict_ns(self) -> int:
        """Give the predicted duration of what was taken."""
        return self._cost.predict_ns(rows=self.rows, logits=self.logits, pairs=self.pairs)
