"""The texts, from a folder that the user names; nothing of them is kept in the project."""

import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path

from tercet.base.errors import Invalid

WIKITEXT, LAMBADA = "wikitext2_test.txt.gz", "lambada_test.jsonl.gz"
PIQA, PIQA_LABELS = "piqa_valid.jsonl.gz", "piqa_valid_labels.lst"
FILES = (WIKITEXT, LAMBADA, PIQA, PIQA_LABELS)
_NUMBER = re.compile(r" @([-,.])@ ")
_PUNCTUATION = re.compile(r" ([:;.!?,])(?=\s)")
_PAIRS = tuple(
    (re.compile(rf"{begin}\s*([^{inner}]*?)\s*{end}"), form)
    for begin, inner, end, form in (
        (r"\(", r")\n", r"\)", r"(\1)"),
        (r"\[", r"\]\n", r"\]", r"[\1]"),
        (r"{", r"}\n", r"}", r"{\1}"),
        (r'"', r'"\n', r'"', r'"\1"'),
        (r"(?<= )'", r"'\n", r"'(?= )", r"'\1'"),
    )
)
_HEADING = re.compile(r"(?m)^ ?(=(?: =)*) (.*?) (=(?: =)*) ?$")


@dataclass(frozen=True)
class Cloze:
    """A passage without its last word, and the word."""

    context: str
    word: str


@dataclass(frozen=True)
class Choice:
    """A goal, two ways to it, and which is right."""

    goal: str
    ways: tuple[str, str]
    right: int


@dataclass(frozen=True)
class Texts:
    """Everything that is asked."""

    wikitext: str
    lambada: tuple[Cloze, ...]
    piqa: tuple[Choice, ...]


def read_texts(folder: Path) -> Texts:
    """The texts of the folder; `Invalid` says which file is not there."""
    for name in FILES:
        if not (folder / name).is_file():
            raise Invalid(f"{folder} holds no {name}.", parameter="data")
    choices = zip(_lines(folder / PIQA), (folder / PIQA_LABELS).read_text().split(), strict=True)
    return Texts(
        wikitext=detokenized(gzip.decompress((folder / WIKITEXT).read_bytes()).decode()),
        lambada=tuple(cloze(json.loads(line)["text"]) for line in _lines(folder / LAMBADA)),
        piqa=tuple(choice(json.loads(line), label) for line, label in choices),
    )


def detokenized(text: str) -> str:
    """WikiText as people write: its spaces around punctuation and in numbers are undone.

    The rules are those that are in use for this corpus (Megatron-LM's `detokenizer.py`), with
    pairs of brackets and quotes kept within a line.
    """
    text = text.replace("s '", "s'")
    text = _NUMBER.sub(r"\1", text)
    text = _PUNCTUATION.sub(r"\1", text)
    for pattern, form in _PAIRS:
        text = pattern.sub(form, text)
    text = _HEADING.sub(_heading, text)
    text = text.replace(" \N{DEGREE SIGN} ", "\N{DEGREE SIGN}")
    text = text.replace(" \n", "\n").replace("\n ", "\n").replace(" N ", " 1 ")
    return text.replace(" 's", "'s")


def cloze(text: str) -> Cloze:
    """The passage up to its last space, and what follows it."""
    context, _, word = text.rstrip().rpartition(" ")
    return Cloze(context, word)


def choice(row: dict[str, str], label: str) -> Choice:
    """A row of PIQA."""
    return Choice(row["goal"], (row["sol1"], row["sol2"]), int(label))


def _heading(match: re.Match[str]) -> str:
    begin, title, end = match.groups()
    return f"{begin.replace(' ', '')} {title} {end.replace(' ', '')}"


def _lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()
