"""Descriptors of executors that the supervisor keeps for an agent's next self."""

import os
from dataclasses import dataclass, field

from tercet.base.ids import ExecutorId
from tercet.runtime.control import Held, Hold


@dataclass
class _Holding:
    pid: int = 0
    parts: dict[str, int] = field(default_factory=dict)


class Holdings:
    """What is held of each executor, by part: its process, its progress page, its arena."""

    def __init__(self) -> None:
        self._of: dict[ExecutorId, _Holding] = {}
        self.next_executor = 0
        """No lower executor id may be new: ids are never used twice."""

    def hold(self, note: Hold, descriptors: list[int]) -> None:
        """Keep these descriptors, in place of former ones of the same parts."""
        holding = self._of.setdefault(note.executor, _Holding())
        holding.pid = note.pid or holding.pid
        self.next_executor = max(self.next_executor, note.executor + 1)
        for part, descriptor in zip(note.parts, descriptors, strict=True):
            former = holding.parts.pop(part, None)
            if former is not None:
                os.close(former)
            holding.parts[part] = descriptor

    def notes(self) -> list[tuple[Held, tuple[int, ...]]]:
        """Everything that is held, as it is told to a new agent."""
        return [
            (
                Held(executor=executor, pid=holding.pid, parts=tuple(holding.parts)),
                tuple(holding.parts.values()),
            )
            for executor, holding in self._of.items()
        ]

    def release(self, executor: ExecutorId) -> None:
        """Close what is held of an executor, if anything is."""
        holding = self._of.pop(executor, None)
        if holding is not None:
            for descriptor in holding.parts.values():
                os.close(descriptor)

    def close(self) -> None:
        for executor in list(self._of):
            self.release(executor)
