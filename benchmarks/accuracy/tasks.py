"""The texts as tokens: what is computed, and which rows are looked at."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.accuracy.texts import Choice, Cloze, Texts

WINDOW = 1024
KL_EVERY = 32
"""Rows of a window whose whole distribution is compared: every so many, the first left out."""
Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True)
class Size:
    """How much is asked."""

    windows: int = 60
    lambada: int = 2000
    piqa: int = 1838


@dataclass(frozen=True)
class Ending:
    """Tokens of which the last `count` are scored, each given all before it."""

    ids: tuple[int, ...]
    count: int
    num_bytes: int
    """Of the scored text."""


@dataclass(frozen=True)
class Tasks:
    """All work on a model."""

    windows: tuple[tuple[int, ...], ...]
    """Each of WINDOW tokens; all but the first are scored."""
    words: tuple[Ending, ...]
    choices: tuple[tuple[Ending, Ending], ...]
    right: tuple[int, ...]
    """For each choice the index of the right one."""


def make_tasks(texts: Texts, encode: Encode, size: Size) -> Tasks:
    """Windows are spread over the text; of the others the first ones are taken."""
    ids = encode(texts.wikitext)
    whole = len(ids) // WINDOW
    count = min(size.windows, whole)
    starts = [index * whole // count * WINDOW for index in range(count)]
    chosen = texts.piqa[: size.piqa]
    return Tasks(
        windows=tuple(tuple(ids[start : start + WINDOW]) for start in starts),
        words=tuple(word_ending(one, encode) for one in texts.lambada[: size.lambada]),
        choices=tuple(way_endings(one, encode) for one in chosen),
        right=tuple(one.right for one in chosen),
    )


def word_ending(one: Cloze, encode: Encode) -> Ending:
    """The last word with the space before it."""
    return ending(one.context, f" {one.word}", encode)


def way_endings(one: Choice, encode: Encode) -> tuple[Ending, Ending]:
    """Both ways as answers to the goal."""
    question = f"Question: {one.goal}\nAnswer:"
    first, second = (ending(question, f" {way.strip()}", encode) for way in one.ways)
    return first, second


def ending(context: str, text: str, encode: Encode) -> Ending:
    """The text after its context; each is encoded for itself, so that the seam is the same."""
    before, after = tuple(encode(context)), tuple(encode(text))
    return Ending(before + after, len(after), len(text.encode()))


def prefer(scores: tuple[float, float], endings: tuple[Ending, Ending]) -> int:
    """The index of the way whose log-likelihood for each of its bytes is greater."""
    first, second = (score / one.num_bytes for score, one in zip(scores, endings, strict=True))
    return 0 if first >= second else 1


def kl_rows() -> range:
    """The rows of a window whose distributions are compared."""
    return range(KL_EVERY - 1, WINDOW - 1, KL_EVERY)
