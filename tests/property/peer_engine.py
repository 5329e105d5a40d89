"""A fake engine that reads lent arenas too, and knows in which lives blocks are.

Block ids are (number of the arena) x `ARENA_IDS` + index; its own arena is number 0.
"""

from array import array
from dataclasses import dataclass, field

from fake_engine import BLOCK, FakeEngine
from msgspec.structs import replace

from tercet.messages.plan import StepPlan, StepResult

ARENA_IDS = 10_000


def integers(data, code="i"):
    values = array(code)
    values.frombytes(data)
    return list(values)


@dataclass
class PeerEngine(FakeEngine):
    """Reads lent arenas too, and knows in which lives blocks are."""

    lives: dict[int, int] = field(default_factory=dict)
    mapped: dict[int, "PeerEngine"] = field(default_factory=dict)
    """Number of the arena in this engine's ids -> whose it is."""
    borrowed: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    stale_tasks: set[int] = field(default_factory=set)

    def run(self, plan: StepPlan) -> StepResult:
        fresh = []
        for slot in plan.closes:
            self.borrowed.pop(slot, None)
        for opening in plan.opens:
            table = integers(opening.blocks)
            fresh += table[-(-opening.computed // BLOCK) :]
            if opening.lives:
                lives = integers(opening.lives, "I")
                ids = table[opening.borrowed_at : opening.borrowed_at + len(lives)]
                self.borrowed[opening.slot] = (ids, lives)
        fresh += integers(plan.blocks)
        begins = integers(plan.begins, "I")
        assert len(begins) == len(fresh)
        for block, life in zip(fresh, begins, strict=True):
            self.begin(block, life)
        slots = integers(plan.slots)
        stale = [at for at, slot in enumerate(slots) if self._is_stale(slot)]
        broken = {slots[at] for at in stale}
        for number in broken & set(self.slots):
            self.slots[number].ended = True
        self.stale_tasks = {one.task.id for one in plan.opens if one.slot in broken}
        result = super().run(plan)
        return replace(result, stale=array("i", stale).tobytes()) if stale else result

    def begin(self, block, life):
        """A block begins a life; what it held is nobody's any more."""
        if self.lives.get(block) != life:
            self.lives[block] = life
            for at in range(BLOCK):
                self.notes.pop((block, at), None)

    def _is_stale(self, slot):
        ids, lives = self.borrowed.get(slot, ([], []))
        for block, life in zip(ids, lives, strict=True):
            owner, index = self._owner(block)
            if owner.lives.get(index) != life:
                return True
        return False

    def _owner(self, block):
        number, index = divmod(block, ARENA_IDS)
        return (self.mapped[number], index) if number else (self, block)

    def _check_ids(self, table):
        for block in table:
            owner, index = self._owner(block)
            assert 0 <= index < owner.num_blocks

    def _verify(self, slot, at):
        if slot.ended or slot.task.id in self.stale_tasks:
            return
        owner, index = self._owner(slot.table[at // BLOCK])
        note = owner.notes.get((index, at % BLOCK))
        assert note == tuple(slot.tokens[: at + 1]), f"foreign KV at {at} of {slot.task.id}"

    def _compute(self, slot, count, samples, num_drafts):
        if slot.task.id in self.stale_tasks:
            slot.ended = True
        return super()._compute(slot, count, samples, num_drafts)
