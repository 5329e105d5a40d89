"""Moves and sums in virtual time: the mover of every process, the wires and disks between memories.

Move ──(waits for a layer)──▶ begins ──(its turn on the link, its time)──▶ Moved
                                │ first half of the cells is read here      │ the other half here

What was written over meanwhile arrives torn, as it would; fences and folds have to find it. A
target holds garbage from the first byte on until the move ended well.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tercet.base.errors import InvariantBroken
from tercet.base.ids import Address
from tercet.base.rand import Rand
from tercet.devices.contract import I64, U64
from tercet.messages.effects import Move, Sum
from tercet.messages.events import Moved, MoveEnd, Summed
from tercet.messages.kv import Strip
from tercet.pool.labels import record_of
from tercet.sim.memories import Arena, Memories, Memory, cells_of, fold
from tercet.sim.planes import Link, Planes
from tercet.sim.timeline import Timeline

MOVES_MAX = 100_000
"""Under way at a time, of all processes together: more is a machine that runs wild."""


class Owner(Protocol):
    """The process whose machine asked."""

    address: Address
    alive: bool

    @property
    def now(self) -> int: ...

    @property
    def thaws_in(self) -> int: ...

    def deliver(self, event: Moved | Summed) -> None: ...


class Sender(Protocol):
    """The agent that serves its host's memories to other hosts."""

    alive: bool

    @property
    def thaws_in(self) -> int: ...


@dataclass(slots=True)
class _Carry:
    owner: Owner
    move: Move
    source: Memory
    target: Memory
    read: I64
    write: I64
    sender: Sender | None
    """Between hosts: who sends."""
    link: Link
    asked: int
    early: U64
    """What was read at the beginning: the first half."""
    over: bool = False


class Mover:
    """Carries out moves and sums of all processes; `sender_of` gives a host's living agent."""

    def __init__(
        self,
        timeline: Timeline,
        memories: Memories,
        planes: Planes,
        *,
        rand: Rand,
        sender_of: Callable[[str], Sender | None],
    ) -> None:
        self._timeline = timeline
        self._memories = memories
        self._planes = planes
        self._rand = rand
        self._sender_of = sender_of
        self._num_spoilt = 0
        self.num_under_way = 0
        self.num_corrupted = 0
        self.ends: dict[str, int] = {}
        """How moves ended, by end and plane."""
        self.looks: list[Callable[[Owner, Move], None]] = []
        """Checkers that see a move before its first byte."""

    def corrupt_next(self) -> None:
        """The next move between hosts arrives with another content than was sent."""
        self._num_spoilt += 1

    def carry_out(self, owner: Owner, move: Move) -> None:
        """Answer with one `Moved`, unless the owner ends before."""
        self.num_under_way += 1
        if self.num_under_way > MOVES_MAX:
            raise InvariantBroken(f"{owner.address} asks for more than {MOVES_MAX} moves at a time")
        source = self._memories.find(move.source.memory)
        target = self._memories.find(move.target.memory)
        if target is None:
            raise InvariantBroken(f"{owner.address} moves into {move.target.memory}, which is none")
        if move.target.size != move.source.size:
            raise InvariantBroken(f"{owner.address}: a move of two sizes, ticket {move.ticket}")
        link = self._planes.link(source or target, target)
        carry = _Carry(
            owner=owner,
            move=move,
            source=source or target,
            target=target,
            read=cells_of(move.source),
            write=cells_of(move.target),
            sender=self._sender_of(source.host) if source and link.between_hosts else None,
            link=link,
            asked=self._timeline.now,
            early=np.zeros(0, np.uint64),
        )
        for look in self.looks:
            look(owner, move)
        if move.deadline:
            self._timeline.after(
                max(0, move.deadline - owner.now), lambda: self._answer(carry, MoveEnd.LATE)
            )
        if source is None or (link.between_hosts and carry.sender is None):
            self._timeline.after(link.latency, lambda: self._answer(carry, MoveEnd.GONE))
        elif move.step:
            self._after_layer(carry)
        else:
            self._begin(carry)

    def sum(self, owner: Owner, effect: Sum) -> None:
        """Answer with the folds of what the strips hold when it is done."""
        parts = [(self._memories.find(strip.memory), cells_of(strip)) for strip in effect.sources]
        size = sum(strip.size for strip in effect.sources)

        def done() -> None:
            checks = []
            for memory, cells in parts:
                if memory is None:
                    raise InvariantBroken(f"{owner.address} sums a memory that is none")
                checks.append(fold(memory.read(cells)))
            owner.deliver(Summed(ticket=effect.ticket, checks=tuple(checks)))

        self._timeline.after(self._planes.sum_time(size), done)

    # steps of a move

    def _after_layer(self, carry: _Carry) -> None:
        source, move = carry.source, carry.move
        if isinstance(source, Arena) and source.owner is not None:
            source.owner.when(move.step, move.layer, lambda: self._begin(carry))

    def _begin(self, carry: _Carry) -> None:
        if self._is_over(carry):
            return
        move, target = carry.move, carry.target
        if isinstance(target, Arena) and move.target.lives:
            units = np.frombuffer(move.target.units, "<i4").astype(np.int64)
            target.renew(units, np.frombuffer(move.target.lives, "<u4"))
        if carry.link.refuses():
            self._answer(carry, MoveEnd.FULL)
            return
        target.spoil(carry.write)
        if not _lives(carry.source, move.source):
            self._timeline.after(carry.link.latency, lambda: self._answer(carry, MoveEnd.STALE))
            return
        carry.early = carry.source.read(carry.read[: len(carry.read) // 2])
        self._timeline.at(carry.link.take(move.source.size), lambda: self._finish(carry))

    def _finish(self, carry: _Carry) -> None:
        if self._is_over(carry):
            return
        wait = carry.owner.thaws_in
        if carry.sender is not None:
            wait = max(wait, carry.sender.thaws_in, carry.link.cut_for())
        if carry.link.is_broken(carry.asked) or not (carry.sender is None or carry.sender.alive):
            self._answer(carry, MoveEnd.GONE)
        elif wait:
            self._timeline.after(wait, lambda: self._finish(carry))
        elif carry.move.deadline and carry.owner.now > carry.move.deadline:
            self._answer(carry, MoveEnd.LATE)
        elif not _lives(carry.source, carry.move.source):
            self._answer(carry, MoveEnd.STALE)
        else:
            self._arrive(carry)

    def _arrive(self, carry: _Carry) -> None:
        late = carry.source.read(carry.read[len(carry.read) // 2 :])
        sent = np.concatenate([carry.early, late])
        came = sent.copy()
        if carry.link.between_hosts and self._num_spoilt and len(came):
            self._num_spoilt -= 1
            self.num_corrupted += 1
            came[self._rand.below(len(came))] ^= np.uint64(1 << self._rand.below(63))
        carry.target.write(carry.write, came)
        check = carry.move.check
        expected = fold(sent) if check is None else check
        # Within a host nothing is summed unless somebody said what it must be.
        summed = check is not None or carry.link.between_hosts
        good = not summed or fold(came) == expected
        if good and carry.move.label:
            carry.target.labels[record_of(carry.move.label)] = carry.move.label
        self._answer(carry, MoveEnd.DONE if good else MoveEnd.CORRUPT)

    def _is_over(self, carry: _Carry) -> bool:
        """Whether it was answered, or nobody is there to hear an answer."""
        if not carry.over and not carry.owner.alive:
            carry.over = True
            self.num_under_way -= 1
        return carry.over

    def _answer(self, carry: _Carry, end: MoveEnd) -> None:
        if self._is_over(carry):
            return
        carry.over = True
        self.num_under_way -= 1
        key = f"{end.value} {carry.link.plane}"
        self.ends[key] = self.ends.get(key, 0) + 1
        size = carry.move.source.size if end is MoveEnd.DONE else 0
        carry.owner.deliver(
            Moved(
                ticket=carry.move.ticket,
                end=end,
                size=size,
                duration_ns=self._timeline.now - carry.asked,
                wire=carry.link.plane,
            )
        )


def _lives(memory: Memory, strip: Strip) -> bool:
    """Whether the units of a strip are in the generations that it names."""
    if not strip.lives or not isinstance(memory, Arena):
        return True
    units = np.frombuffer(strip.units, "<i4")
    return bool((memory.lives[units] == np.frombuffer(strip.lives, "<u4")).all())
