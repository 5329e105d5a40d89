"""What float32 says, computed once, part by part: it takes long, so it is kept beside the images.

A run that is ended goes on where the last whole part was.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.subject import Answers, Subject
from benchmarks.accuracy.tasks import Tasks, kl_rows

VERSION = "1"
PARTS = 12
Truth = tuple[Answers, NDArray[np.float32]]
"""Answers, and [windows, rows, V] log-probabilities."""


def truth_key(*parts: str) -> str:
    """A name for what the parts decide: the model and the tasks."""
    return hashlib.sha256("\0".join((VERSION, *parts)).encode()).hexdigest()[:20]


def split(tasks: Tasks) -> list[Tasks]:
    """The tasks in PARTS parts, in order."""

    def cut(items: Sequence[object], part: int) -> slice:
        return slice(part * len(items) // PARTS, (part + 1) * len(items) // PARTS)

    return [
        Tasks(
            windows=tasks.windows[cut(tasks.windows, part)],
            words=tasks.words[cut(tasks.words, part)],
            choices=tasks.choices[cut(tasks.choices, part)],
            right=tasks.right[cut(tasks.right, part)],
        )
        for part in range(PARTS)
    ]


def is_whole(folder: Path, key: str) -> bool:
    """Is every part kept?"""
    return all(_path(folder, key, part).exists() for part in range(PARTS))


def read_truth(folder: Path, key: str) -> Truth:
    """All parts together."""
    parts = [_read(_path(folder, key, part)) for part in range(PARTS)]
    answers = Answers(
        **{
            field.name: np.concatenate(
                [value for one, _ in parts if len(value := getattr(one, field.name))] or [[]]
            )
            for field in fields(Answers)
        }
    )
    return answers, np.concatenate([table for _, table in parts])


def keep_truth(folder: Path, key: str, subject: Subject, tasks: Tasks) -> None:
    """Have float32 answer what is not kept yet, and keep it under the key."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, some in enumerate(split(tasks)):
        path = _path(folder, key, part)
        if not path.exists():
            table = np.zeros((len(some.windows), len(kl_rows()), subject.vocab), np.float32)
            answers = subject.answer(some, table)
            half = path.with_name(f"{path.stem}.{os.getpid()}.npz")
            np.savez(half, **asdict(answers), table=table)
            half.rename(path)


def _read(path: Path) -> Truth:
    with np.load(path) as kept:
        answers = {field.name: kept[field.name] for field in fields(Answers)}
        return Answers(**answers), kept["table"]


def _path(folder: Path, key: str, part: int) -> Path:
    return folder / f"{key}-{part}.npz"
