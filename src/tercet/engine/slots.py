"""State of the tasks beside the device, one slot each, as a structure of arrays.

A decode step of 64 tasks touches 64 entries of a dozen arrays: a dozen array operations, whatever
the number of tasks. What few tasks have (penalties, biases, many stop ids) lives in dicts.

    tokens   [slot, position]     prompt, then output          ├── computed ──┼ uncomputed ┤ free
    table    [slot, n]            block ids of the sequence    ├── table_length ──┤ free
    known, computed, prompt ...   [slot]

`tokens` and `table` are as wide as the context and made of untouched pages: memory is spent only
on what sequences really hold.
"""

import mmap
from math import ceil

import numpy as np
from numpy.typing import NDArray

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS
from tercet.base.model import ModelShape
from tercet.base.rand import mix
from tercet.devices.contract import F32, I32, I64, U64
from tercet.engine.history import TokenCounts
from tercet.jobs.job import Task
from tercet.jobs.sampling import SamplingParameters
from tercet.messages.plan import SlotOpening

Flags = NDArray[np.bool_]
STOPS_INLINE = 8
"""Stop ids that fit a row of `stops`; tasks with more are looked up in a set."""
_MASK_64 = (1 << 64) - 1


class Slots:
    """All slots of one engine. Arrays are read by `batch` and `settle`; only `open`, `close`,
    `grow` and `settle.settle` change them.
    """

    def __init__(self, *, max_slots: int, shape: ModelShape) -> None:
        self.max_slots = max_slots
        self.vocab = shape.vocab
        self.context_max = shape.context_max
        self.end_ids = tuple(end for end in shape.end_ids if 0 <= end < shape.vocab)
        self.tokens: I32 = _untouched(max_slots, shape.context_max)
        self.table: I32 = _untouched(max_slots, ceil(shape.context_max / BLOCK_TOKENS))
        self.table_length: I64 = np.zeros(max_slots, np.int64)
        self.opened: Flags = np.zeros(max_slots, bool)
        self.ended: Flags = np.zeros(max_slots, bool)
        """Finished, and not yet closed: later rows of it are dropped."""
        self.known: I64 = np.zeros(max_slots, np.int64)
        self.computed: I64 = np.zeros(max_slots, np.int64)
        self.prompt: I64 = np.zeros(max_slots, np.int64)
        self.limit: I64 = np.zeros(max_slots, np.int64)
        """Known tokens at which the task ends with FINISH_LENGTH."""
        self.stops_from: I64 = np.zeros(max_slots, np.int64)
        """Known tokens from which a stop may be drawn (`min_tokens`); before, stops are banned."""
        self.stops: I32 = np.full((max_slots, STOPS_INLINE), -1, np.int32)
        self.end_position: I32 = np.zeros(max_slots, np.int32)
        """Where a device without weights draws an end id (`MadeUp`)."""
        self.temperature: F32 = np.zeros(max_slots, np.float32)
        self.top_k: I32 = np.zeros(max_slots, np.int32)
        self.top_p: F32 = np.zeros(max_slots, np.float32)
        self.min_p: F32 = np.zeros(max_slots, np.float32)
        self.seed: U64 = np.zeros(max_slots, np.uint64)
        self.choice: I32 = np.zeros(max_slots, np.int32)
        self.repetition: F32 = np.zeros(max_slots, np.float32)
        self.presence: F32 = np.zeros(max_slots, np.float32)
        self.frequency: F32 = np.zeros(max_slots, np.float32)
        self.num_logprobs: I32 = np.zeros(max_slots, np.int32)
        self.prompt_logprobs: I32 = np.zeros(max_slots, np.int32)
        """-1: not wanted, or already delivered with the first piece."""
        self.counts: dict[int, TokenCounts] = {}
        self.biases: dict[int, tuple[I32, F32]] = {}
        self.stop_ids: dict[int, I32] = {}
        """Only of tasks with `min_tokens` or with more stop ids than `stops` has room for."""
        self.stop_sets: dict[int, frozenset[int]] = {}

    def open(self, opening: SlotOpening) -> None:
        """Give the slot to the task; its known tokens are the prompt and what was generated."""
        slot, task = opening.slot, opening.task
        must(0 <= slot < self.max_slots, f"slot {slot} of {self.max_slots}")
        must(not self.opened[slot], f"slot {slot} is opened twice")
        known = np.array(task.prompt + task.generated, np.int32)
        must(len(task.prompt) > 0, f"slot {slot}: an empty prompt")
        must(
            0 <= int(known.min()) <= int(known.max()) < self.vocab,
            f"slot {slot}: a token outside the vocabulary of {self.vocab}",
        )
        limit = min(len(task.prompt) + task.sampling.max_tokens, self.context_max)
        must(len(known) < limit, f"slot {slot}: {len(known)} tokens known, {limit} are its end")
        must(
            0 <= opening.computed < len(known),
            f"slot {slot}: {opening.computed} computed of {len(known)} known tokens",
        )
        self.opened[slot] = True
        self.ended[slot] = False
        self.tokens[slot, : len(known)] = known
        self.known[slot] = len(known)
        self.computed[slot] = opening.computed
        self.prompt[slot] = len(task.prompt)
        self.limit[slot] = limit
        self.table_length[slot] = 0
        blocks = np.frombuffer(opening.blocks, "<i4").astype(np.int64)
        self.grow(np.full(1, slot), np.full(1, len(blocks)), blocks)
        must(
            opening.computed <= len(blocks) * BLOCK_TOKENS,
            f"slot {slot}: {opening.computed} tokens computed in {len(blocks)} blocks",
        )
        self._set_sampling(slot, task)
        self._set_stops(slot, task.sampling, len(task.prompt))
        self._set_logprobs(opening)

    def close(self, slot: int) -> None:
        """Forget the slot's task."""
        must(0 <= slot < self.max_slots and self.opened[slot], f"slot {slot} is not open")
        self.opened[slot] = False
        for sparse in (self.counts, self.biases, self.stop_ids, self.stop_sets):
            sparse.pop(slot, None)

    def grow(self, slots: I64, growth: I64, blocks: I64) -> None:
        """Append blocks to the slots' tables, `growth` of them to each."""
        must(int(growth.sum()) == len(blocks), f"{len(blocks)} blocks for {growth.sum()} places")
        ends = self.table_length[slots] + growth
        must(
            growth.min(initial=0) >= 0 and ends.max(initial=0) <= self.table.shape[1],
            "a block table grows beyond the context",
        )
        first = np.cumsum(growth) - growth
        place = np.arange(len(blocks)) - np.repeat(first - self.table_length[slots], growth)
        self.table[np.repeat(slots, growth), place] = blocks
        self.table_length[slots] = ends

    def _set_sampling(self, slot: int, task: Task) -> None:
        asked = task.sampling
        must(asked.seed is not None, f"slot {slot}: the task has no seed")
        seed = (asked.seed or 0) & _MASK_64
        self.temperature[slot] = asked.temperature
        self.top_k[slot] = min(max(asked.top_k, 0), self.vocab)
        self.top_p[slot] = asked.top_p
        self.min_p[slot] = asked.min_p
        self.seed[slot] = seed
        self.choice[slot] = task.choice
        self.repetition[slot] = asked.repetition_penalty
        self.presence[slot] = asked.presence_penalty
        self.frequency[slot] = asked.frequency_penalty
        if asked.repetition_penalty != 1.0 or asked.presence_penalty or asked.frequency_penalty:
            counts = TokenCounts(task.prompt if asked.repetition_penalty != 1.0 else ())
            for token in task.generated:
                counts.add(token)
            self.counts[slot] = counts
        if asked.logit_bias:
            ids = np.array([token for token, _ in asked.logit_bias], np.int32)
            values = np.array([value for _, value in asked.logit_bias], np.float32)
            self.biases[slot] = ids, values
        self.end_position[slot] = made_up_end(task) if self.end_ids else -1

    def _set_stops(self, slot: int, asked: SamplingParameters, prompt: int) -> None:
        ends = () if asked.ignore_eos else self.end_ids
        stops = tuple(dict.fromkeys((*ends, *asked.stop_token_ids)))
        self.stops_from[slot] = prompt + asked.min_tokens
        self.stops[slot] = -1
        if len(stops) <= STOPS_INLINE:
            self.stops[slot, : len(stops)] = stops
        else:
            self.stop_sets[slot] = frozenset(stops)
        if asked.min_tokens and stops:
            self.stop_ids[slot] = np.array(
                [stop for stop in stops if 0 <= stop < self.vocab], np.int32
            )

    def _set_logprobs(self, opening: SlotOpening) -> None:
        slot, asked = opening.slot, opening.task.sampling
        self.num_logprobs[slot] = -1 if asked.logprobs is None else asked.logprobs
        wanted = asked.prompt_logprobs is not None and not opening.task.generated
        must(
            not wanted or opening.computed == 0,
            f"slot {slot}: prompt log-probabilities of tokens that came from the cache",
        )
        self.prompt_logprobs[slot] = (asked.prompt_logprobs or 0) if wanted else -1


def made_up_end(task: Task) -> int:
    """Where a device without weights ends the task, whenever it is resumed; -1: nowhere."""
    asked = task.sampling
    if asked.ignore_eos:
        return -1
    drawn = mix(mix((asked.seed or 0) & _MASK_64) ^ task.choice) % asked.max_tokens
    return len(task.prompt) + max(drawn, asked.min_tokens)


def _untouched(rows: int, columns: int) -> I32:
    """[rows, columns] zeros in pages that take no memory before they are written."""
    pages = mmap.mmap(-1, max(1, rows * columns * 4))
    return np.frombuffer(pages, np.int32)[: rows * columns].reshape(rows, columns)
