"""One choice's stream: tokens come in, text without stop strings goes out, the same for everyone.

Streaming and whole answers are made of the same deltas, so both are cut at the same character.
Text may be held back (half a character, the beginning of a stop string); tokens are not: they
are counted and shown as they come, up to the one that completed a stop string or ended the task.
"""

from copy import copy
from dataclasses import dataclass, field

from tercet.api.ask import Ask
from tercet.api.logprobs import Entry
from tercet.jobs.job import Finish, TaskOutput, TokenLogprobs
from tercet.text.detokenizer import Detokenizer
from tercet.text.stops import StopStrings

_PROMPT_TAIL = 64
"""Tokens of the prompt that the detokenizer may look back at."""


@dataclass(slots=True)
class Delta:
    """What pieces that were ready together added to one choice."""

    index: int
    parts: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    finish: Finish | None = None
    stop_reason: int | str | None = None

    @property
    def text(self) -> str:
        return "".join(self.parts)


def open_choices(ask: Ask) -> list["Choice"]:
    """Make the choices of every prompt. The stop strings are compiled once: a copy of a fresh
    stream is a fresh stream over the same tables.
    """
    delivery, job = ask.delivery, ask.job
    stops = None
    if delivery.stops:
        stops = StopStrings(delivery.stops, include_stop=delivery.include_stop)
    return [
        Choice(index, ask, prompt=job.prompts[index // job.n], stops=copy(stops))
        for index in range(job.num_tasks)
    ]


class Choice:
    """The state of one choice."""

    __slots__ = (
        "_ask",
        "_detokenizer",
        "_echo",
        "_length",
        "_prompt",
        "_stops",
        "cached_tokens",
        "finish",
        "index",
        "num_tokens",
        "prompt_logprobs",
    )

    def __init__(
        self, index: int, ask: Ask, *, prompt: tuple[int, ...], stops: StopStrings | None
    ) -> None:
        delivery = ask.delivery
        self.index = index
        self.num_tokens = 0
        """Tokens delivered, the one that stopped the text included."""
        self.cached_tokens = 0
        self.finish: Finish | None = None
        self.prompt_logprobs: list[TokenLogprobs | None] = []
        self._ask = ask
        self._prompt = prompt
        self._echo = None if ask.echo is None else ask.echo[index // ask.job.n]
        self._length = 0
        """Characters of the choice's text so far, before anything is cut."""
        self._detokenizer: Detokenizer = ask.model.codec.detokenizer(
            skip_special=delivery.skip_special, prompt_tail=prompt[-_PROMPT_TAIL:]
        )
        self._stops = stops

    def push(self, piece: TaskOutput, delta: Delta) -> None:
        """Add the next piece to the delta; its `finish` ends the choice, whatever follows."""
        # A task that begins anew on another executor may tell of its prompt again.
        if piece.cached_tokens is not None and self.num_tokens == 0:
            self.cached_tokens = min(piece.cached_tokens, len(self._prompt))
        if piece.prompt_logprobs is not None:
            known = self.prompt_logprobs + list(piece.prompt_logprobs)
            self.prompt_logprobs = known[-len(self._prompt) :]
        if self._echo is not None:
            self._push_echo(delta, self._echo)
        if self._ask.discard:
            if piece.finish is not None:
                delta.finish = self.finish = Finish.LENGTH
            return
        if self._stops is None and piece.logprobs is None:
            self._push_plain(delta, piece)
        else:
            self._push_each(delta, piece)
        if piece.finish is not None and self.finish is None:
            self._end(delta, piece)

    def _push_plain(self, delta: Delta, piece: TaskOutput) -> None:
        delta.tokens.extend(piece.tokens)
        self.num_tokens += len(piece.tokens)
        delta.parts.append(self._detokenizer.push(piece.tokens[: self._num_shown(piece)]))

    def _push_each(self, delta: Delta, piece: TaskOutput) -> None:
        num_shown = self._num_shown(piece)
        for position, token in enumerate(piece.tokens):
            shown = (token,) if position < num_shown else ()
            if piece.logprobs is not None and self._ask.delivery.logprobs is not None:
                delta.entries.append(Entry(token, self._length, piece.logprobs[position]))
            delta.tokens.append(token)
            self.num_tokens += 1
            text = self._detokenizer.push(shown)
            self._length += len(text)
            self._emit(delta, text)
            if self.finish is not None:
                return

    def _emit(self, delta: Delta, text: str) -> None:
        """Let text through the stop strings, which begin to look after `min_tokens`."""
        stops = self._stops
        if stops is None or self.num_tokens <= self._ask.delivery.min_tokens:
            delta.parts.append(text)
            return
        match = stops.push(text)
        delta.parts.append(match.emit)
        if match.found is not None:
            delta.finish = self.finish = Finish.STOP
            delta.stop_reason = match.found

    def _end(self, delta: Delta, piece: TaskOutput) -> None:
        text = self._detokenizer.flush()
        self._emit(delta, text)
        if self.finish is not None:
            return
        if self._stops is not None:
            delta.parts.append(self._stops.flush())
        delta.finish = self.finish = piece.finish
        if piece.stop_token is not None and piece.stop_token not in self._ask.model.end_ids:
            delta.stop_reason = piece.stop_token

    def _num_shown(self, piece: TaskOutput) -> int:
        """Count the tokens of the piece whose text belongs to the answer: not the stop token's."""
        hidden = piece.stop_token is not None and not self._ask.delivery.include_stop
        return len(piece.tokens) - hidden

    def _push_echo(self, delta: Delta, echo: str) -> None:
        """Put the prompt before the answer, with its log-probabilities if they were asked for."""
        wants_entries = self._ask.delivery.logprobs is not None
        if wants_entries and len(self.prompt_logprobs) < len(self._prompt):
            return  # the piece that completes them comes before the first token
        self._echo = None
        delta.parts.append(echo)
        if not wants_entries:
            self._length = len(echo)
            return
        reader = self._ask.model.codec.detokenizer(skip_special=self._ask.delivery.skip_special)
        for token, logprobs in zip(self._prompt, self.prompt_logprobs, strict=True):
            delta.entries.append(Entry(token, min(self._length, len(echo)), logprobs))
            self._length += len(reader.push((token,)))
        self._length = len(echo)
