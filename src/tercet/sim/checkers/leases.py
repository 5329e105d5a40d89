"""Leases, from messages and plans alone: no block is read after its lease ended, none is given away
while it stands.

lender   BlocksReady ──▶ stands ──▶ ReturnBlocks heard, refused, ended: until then no plan begins
                                    another life of the blocks, no move writes to them
asker    AskBlocks ──▶ granted ──▶ ReturnBlocks said: from then on no plan names them, and no plan
                                   under way does
"""

from array import array
from dataclasses import dataclass, field

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS, Address
from tercet.messages.effects import Effect, Fact, Move, RunStep, Send, Unmap
from tercet.messages.events import ArenaLent, ArenaWithdrawn, PeerJoined, Received, StepDone
from tercet.messages.kv import BlocksReady, BlocksRefused, ReturnBlocks
from tercet.messages.plan import StepPlan
from tercet.sim.node import Node

Ask = tuple[Address, int]
Place = tuple[str, int]
"""(memory, index)."""


@dataclass(slots=True)
class _Books:
    """What one executor process lends and borrows."""

    name: str
    lent: dict[Ask, dict[int, int]] = field(default_factory=dict)
    """By asker and ask: places in the own arena, and the step that computes each (0: it is)."""
    borrowed: dict[Ask, dict[Place, None]] = field(default_factory=dict)
    """By lender and ask."""
    arenas: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Lent memories that can be read: (first id, how many)."""
    orphans: dict[str, None] = field(default_factory=dict)
    """Those whose owner is dead: nobody can give their blocks to others."""
    slots: dict[int, dict[Place, None]] = field(default_factory=dict)
    """What open slots read of others."""
    under_way: dict[int, dict[Place, None]] = field(default_factory=dict)
    """By step: what plans under way read of others."""
    epochs: dict[Address, int] = field(default_factory=dict)


class LeaseChecker:
    """Looks at every turn of every executor."""

    def __init__(self) -> None:
        self._books: dict[tuple[Address, int], _Books] = {}
        self.num_granted = 0
        self.num_read = 0
        """Blocks of others that plans named."""

    def look(self, node: Node, event: object, effects: list[Effect]) -> None:
        if not node.address.startswith("executor/"):
            return
        key = node.address, node.epoch
        books = self._books.get(key)
        if books is None:
            books = self._books[key] = _Books(node.address)
        self._hear(books, event)
        for effect in effects:
            self._see(books, effect)

    def _hear(self, books: _Books, event: object) -> None:
        match event:
            case Received(sender=sender, message=ReturnBlocks(asks=asks)):
                for number in asks:
                    books.lent.pop((sender, number), None)
            case Received(sender=sender, message=BlocksReady() as ready):
                known = books.borrowed.setdefault((sender, ready.ask), {})
                known.update(((ready.memory, index), None) for index in array("i", ready.units))
            case PeerJoined(peer=peer, epoch=epoch):
                self._joined(books, peer, epoch)
            case ArenaLent(memory=memory, first_block=first, num_blocks=count):
                books.arenas[memory] = first, count
                books.orphans.pop(memory, None)
            case ArenaWithdrawn(memory=memory):
                books.orphans[memory] = None
            case StepDone(result=result):
                books.under_way.pop(result.step, None)
            case _:
                pass

    def _joined(self, books: _Books, peer: Address, epoch: int) -> None:
        if books.epochs.get(peer, epoch) != epoch:
            for key in [one for one in books.lent if one[0] == peer]:
                del books.lent[key]
        books.epochs[peer] = epoch

    def _see(self, books: _Books, effect: Effect) -> None:
        match effect:
            case Send(to=to, message=BlocksReady() as ready):
                self.num_granted += 1
                lent = books.lent.setdefault((to, ready.ask), {})
                lent.update(dict.fromkeys(array("i", ready.units), ready.step))
            case Send(to=to, message=BlocksRefused(ask=number)):
                books.lent.pop((to, number), None)
            case Send(to=to, message=ReturnBlocks(asks=asks)):
                self._returned(books, to, asks)
            case Fact(name="kv.lease_ended", cause=cause):
                asker, _, ended = cause.removeprefix("lease ").rpartition("/")
                books.lent.pop((Address(asker), int(ended)), None)
            case Move(target=target) if "/kv/" in target.memory:
                self._give_away(books, dict.fromkeys(array("i", target.units)), -1)
            case Unmap(memory=memory):
                books.arenas.pop(memory, None)
            case RunStep(plan=plan):
                self._plan(books, plan)
            case _:
                pass

    def _returned(self, books: _Books, lender: Address, asks: tuple[int, ...]) -> None:
        for ask in asks:
            books.borrowed.pop((lender, ask), None)
        for step, places in books.under_way.items():
            for place in places:
                must(
                    _covered(books, place),
                    f"{books.name} returns {place[0]} block {place[1]}, which step {step} reads",
                )

    def _give_away(self, books: _Books, fresh: dict[int, None], step: int) -> None:
        """Blocks that begin another life; by layer they are lent before the step computes them."""
        for (asker, ask), lent in books.lent.items():
            given = next((one for one in fresh if lent.get(one, step) != step), None)
            must(
                given is None,
                f"{books.name} gives block {given} away (step {step}), which is lent to {asker}"
                f" for ask {ask}",
            )

    def _plan(self, books: _Books, plan: StepPlan) -> None:
        if books.lent:
            fresh = dict.fromkeys(array("i", plan.blocks))
            for opening in plan.opens:
                held = -(-opening.computed // BLOCK_TOKENS)
                fresh.update(dict.fromkeys(array("i", opening.blocks)[held:]))
            self._give_away(books, fresh, plan.step)
        for slot in plan.closes:
            books.slots.pop(slot, None)
        for opening in plan.opens:
            if opening.lives:
                count = len(opening.lives) // 4
                ids = array("i", opening.blocks)[opening.borrowed_at :][:count]
                books.slots[opening.slot] = dict.fromkeys(_place(books, one) for one in ids)
        if not books.slots:
            return
        reads: dict[Place, None] = {}
        for slot in array("i", plan.slots):
            reads.update(books.slots.get(slot, {}))
        self.num_read += len(reads)
        for place in reads:
            must(
                _covered(books, place),
                f"{books.name} step {plan.step} reads {place[0]} block {place[1]},"
                " whose lease has ended",
            )
        books.under_way[plan.step] = reads


def _covered(books: _Books, place: Place) -> bool:
    """Whether an ask that was not returned has the block, or nobody is left to write to it."""
    return place[0] in books.orphans or any(place in one for one in books.borrowed.values())


def _place(books: _Books, block: int) -> Place:
    for memory, (first, count) in books.arenas.items():
        if first <= block < first + count:
            return memory, block - first
    must(False, f"{books.name} opens a slot over block {block}, which nobody lent")
    raise AssertionError
