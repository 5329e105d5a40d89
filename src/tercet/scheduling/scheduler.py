"""The owner of all tasks at an executor: it plans steps and takes note of what they did.

    submit -> queue -> admission -> prefilling -> decoding -> (end) -> blocks back to the cache
                 `---- preempt -----------'-------------'

Lists of runs are replaced, never changed in place, so that a plan under way may keep them and the
bytes of the decoding part are written anew only when its tasks change.
"""

from collections import deque

from tercet.base.errors import InvariantBroken, must
from tercet.base.ids import BlockId, TaskId
from tercet.cache.cache import Cache, Holding
from tercet.messages.plan import SlotOpening, StepCost
from tercet.scheduling.admission import give_room_back, opening_of, place_to_admit, take_room
from tercet.scheduling.batch import BatchWriter, Chunk, Planned, start
from tercet.scheduling.budget import Budget
from tercet.scheduling.config import SchedulingConfig
from tercet.scheduling.outside import NOBODY
from tercet.scheduling.pace import Pace
from tercet.scheduling.preemption import victim_for
from tercet.scheduling.queue import WaitingQueue
from tercet.scheduling.run import TaskRun
from tercet.scheduling.speculation import Speculation
from tercet.scheduling.states import UNADMITTED, RunState


class Scheduler:
    """Plans one step at a time from counts that hold once all plans under way are done."""

    def __init__(self, config: SchedulingConfig, *, cost: StepCost, cache: Cache) -> None:
        self.config = config
        self.cache = cache
        self.queue = WaitingQueue()
        self.runs: dict[TaskId, TaskRun] = {}
        """All that have not ended."""
        self.running: dict[TaskId, TaskRun] = {}
        """Those with a slot, by admission."""
        self.fetching: dict[TaskId, TaskRun] = {}
        self.outside = NOBODY
        self.leaving: dict[int, TaskRun] = {}
        """Preempted or ended, with blocks that steps under way still use; by order of arrival."""
        self.flights: deque[Planned] = deque()
        """Plans under way, oldest first."""
        self.preempted: list[TaskRun] = []
        """Since the last plan; whoever plans takes them away."""
        self.solo: TaskRun | None = None
        """A suspect that runs alone until it gains a token."""
        self.num_fresh = 0
        """Tasks that started and have not gained a token: those that a death is blamed on."""
        self.pace = Pace(cost)
        self.speculation = Speculation(draft_max=config.drafts)
        self._decoding: list[TaskRun] = []
        self._prefilling: list[TaskRun] = []
        self._closing: list[int] = []
        self._free_slots = list(range(config.max_slots - 1, -1, -1))
        self._num_preempted_before = 0
        """Length of `preempted` when the present plan was begun."""
        self._writer = BatchWriter(cache.pool)

    @property
    def has_work(self) -> bool:
        """Whether a plan is under way or must be possible."""
        return bool(self.running or self.queue.waiting)

    @property
    def num_waiting(self) -> int:
        """Tasks without a slot."""
        num_back = sum(1 for run in self.leaving.values() if run.state is RunState.LEAVING)
        return len(self.queue) + len(self.fetching) + num_back

    # what happens to a task

    def submit(self, run: TaskRun, *, fetch: bool = False) -> None:
        """Queue a task whose id is not at this executor; a sibling waits for its leader's prompt
        if that is still to be computed. With `fetch` it waits for `fetched` first.
        """
        must(run.id not in self.runs, f"task {run.name} is here already")
        if fetch:
            run.become(RunState.FETCHING)
            self.runs[run.id] = self.fetching[run.id] = run
            return
        if run.state is RunState.FOLLOWING:
            leader = None if run.leader is None else self.runs.get(run.leader)
            if leader is None or leader.prompt_computed:
                run.become(RunState.WAITING)
        self.runs[run.id] = run
        self.queue.add(run)

    def fetched(self, run: TaskRun) -> None:
        """Queue a task whose fetch is over, however it went."""
        self.fetching.pop(run.id)
        run.become(RunState.WAITING)
        self.queue.add(run)

    def end(self, run: TaskRun) -> None:
        """Forget a task, whatever it is doing; its blocks come back when no plan names it."""
        del self.runs[run.id]
        if run.state in UNADMITTED:
            self.queue.remove(run)
        elif run.state is RunState.FETCHING:
            del self.fetching[run.id]
        elif run.state is RunState.RUNNING:
            self._vacate(run)
        if run.started and not run.gained:
            self.num_fresh -= 1
        run.become(RunState.ENDED)
        self.queue.free_followers(run.id)
        if run.flights:
            self.leaving[run.order] = run
        else:
            self.landed(run)

    def hand_over(self, run: TaskRun) -> Holding:
        """End a prefill that is complete and give what it holds to who lends it."""
        holding, run.holding = run.holding, None
        if holding is None or run.flights:
            raise InvariantBroken(f"task {run.name} is complete and in {run.flights} plans")
        self.end(run)
        return holding

    def preempt(self, run: TaskRun) -> None:
        """Take slot and blocks from a running task; it goes on later from what it knows."""
        self._vacate(run)
        run.become(RunState.LEAVING)
        run.preemptions += 1
        self.preempted.append(run)
        if run.flights:
            self.leaving[run.order] = run
        else:
            self.landed(run)

    def lose_borrowed(self, run: TaskRun) -> None:
        """What it read in place is gone: it computes all of its prompt itself, later."""
        run.borrow, run.foreign = None, 0
        if run.state is RunState.RUNNING:
            self.preempt(run)

    def landed(self, run: TaskRun) -> None:
        """Take the blocks of an ended or preempted task that no plan names any more."""
        self.leaving.pop(run.order, None)
        if run.holding is not None:
            self.cache.release(run.holding, run.tokens, computed=run.computed)
            run.forget_progress()
        if self.solo is run:
            self.solo = None
        if run.state is RunState.LEAVING:
            run.become(RunState.WAITING)
            self.queue.add(run)

    def first_token(self, run: TaskRun) -> None:
        """Note that a task gained its first token here: nothing can be blamed on it now."""
        self.num_fresh -= 1
        if self.solo is run:
            self.solo = None

    def verified(self, run: TaskRun, *, drafts: int, accepted: int) -> None:
        """Take note that a plan is done which had so many guesses verified at the most, and how
        many turned out to be right.
        """
        run.drafts_ahead -= drafts
        run.known_ahead += accepted
        run.computed_ahead += accepted
        if accepted and run.known_ahead >= run.known_max and run in self._decoding:
            self._decoding = [other for other in self._decoding if other is not run]

    def computed(self, run: TaskRun) -> None:
        """Let others find what a task has computed, siblings that waited for it first."""
        if run.holding is not None:
            self.cache.index(run.holding, run.tokens, computed=run.computed)
        if run.prompt_computed:
            self.queue.free_followers(run.id)

    def _vacate(self, run: TaskRun) -> None:
        del self.running[run.id]
        if run in self._prefilling:
            self._prefilling = [other for other in self._prefilling if other is not run]
        elif run in self._decoding:
            self._decoding = [other for other in self._decoding if other is not run]
        self._closing.append(run.slot)
        self._free_slots.append(run.slot)

    # planning

    def plan(self, step: int) -> Planned | None:
        """Plan a step behind those under way; None if nothing can be computed now."""
        while True:
            self._num_preempted_before = len(self.preempted)
            planned = self._plan(step)
            if planned is not None or self.flights:
                return planned
            # Whoever was chosen stepped back and nothing is under way: choose among the others.
            if not self._preempts and not (self.has_work and self.outside.unblock()):
                return planned

    @property
    def _preempts(self) -> bool:
        """Whether the present plan has preempted."""
        return len(self.preempted) > self._num_preempted_before

    def _plan(self, step: int) -> Planned | None:
        budget = Budget(
            self.pace.cost, step_ns_max=self.config.step_ns_max, max_rows=self.config.max_rows
        )
        opens: list[SlotOpening] = []
        chunks: list[Chunk] = []
        head = self.queue.head
        if self.solo is None and head is not None and head.suspect and not self.num_fresh:
            opening = None if self.flights else self._admit_alone(head)
            if opening is None:
                return None
            opens.append(opening)
        solo = self.solo
        if solo is None:
            decodes, grown, guesses = self._plan_decodes(self._decoding, budget)
            self._plan_chunks(self._prefilling, budget, chunks)
            self._plan_admissions(budget, chunks, opens)
        else:
            alone = [solo] if solo in self._decoding else []
            decodes, grown, guesses = self._plan_decodes(alone, budget)
            self._plan_chunks([solo] if solo in self._prefilling else [], budget, chunks)
        if not decodes and not chunks:
            must(not opens, "a slot was opened and nothing is computed in it")
            return None
        plan = self._writer.write(
            step,
            ends=(tuple(self._closing), tuple(opens)),
            decodes=decodes,
            grown=grown,
            guesses=guesses,
            chunks=chunks,
        )
        self._closing.clear()
        self.num_fresh += len(opened := start(chunks))
        planned = Planned(
            plan=plan,
            runs=decodes + [chunk.run for chunk in chunks] if chunks else decodes,
            opened=opened,
            num_decodes=len(decodes),
            predicted_ns=budget.predict_ns(),
            rows=budget.rows,
            pairs=budget.pairs,
        )
        self._advance(decodes, guesses, chunks)
        self.flights.append(planned)
        return planned

    def _plan_decodes(
        self, candidates: list[TaskRun], budget: Budget
    ) -> tuple[list[TaskRun], dict[int, tuple[int, ...]], bytes]:
        """Choose decoding tasks, as many as fit, in turn; give them, their new blocks and what is
        guessed of them.
        """
        if not candidates:
            return candidates, {}, b""
        contexts = [run.known_ahead for run in candidates]
        wants = bool(self._prefilling or self.queue.waiting) and self.solo is None
        count = budget.num_decodes(contexts, keep_share=self.config.prefill_share if wants else 0.0)
        chosen = candidates
        if count < len(candidates):
            chosen = candidates[:count]
            self._decoding = candidates[count:] + chosen
        needy = [run for run in chosen if run.context_most > run.capacity]
        grown: dict[int, tuple[int, ...]] = {}
        if needy:
            new: dict[int, BlockId] = {}
            for run in needy:
                if run.state is RunState.RUNNING:
                    block = self._block_for(run)
                    if block is not None:
                        new[run.order] = block
            if len(new) < len(needy) or self._preempts:
                chosen = [
                    run
                    for run in chosen
                    if run.state is RunState.RUNNING and run.context_most <= run.capacity
                ]
            grown = {at: (new[run.order],) for at, run in enumerate(chosen) if run.order in new}
        budget.take_decodes(len(chosen), pairs=sum([run.known_ahead for run in chosen]))
        guesses = self.speculation.plan(
            chosen, cost=self.pace.cost, budget=budget, cache=self.cache, grown=grown
        )
        return chosen, grown, guesses

    def _block_for(self, run: TaskRun) -> BlockId | None:
        """Give the run a block, preempting others if need be; None: not in this step."""
        must(run.holding is not None, f"task {run.name} runs without blocks")
        while run.holding is not None:
            blocks = self.cache.extend(run.holding, 1)
            if blocks is not None:
                run.extended(1)
                return blocks[0]
            if self.outside.give_back():
                continue
            num_planned_out = len(self.running) - len(self._decoding) - len(self._prefilling)
            if self.leaving or num_planned_out:
                return None  # blocks come back as soon as a step under way is done
            victim = victim_for(run, self.running, keep=self.solo)
            must(
                victim is not run or len(self.running) > 1 or self.outside.num_holding,
                f"task {run.name} runs alone and cannot grow: it should have been refused",
            )
            self.preempt(victim)
            if victim is run:
                return None
        return None

    def _plan_chunks(self, candidates: list[TaskRun], budget: Budget, chunks: list[Chunk]) -> None:
        for run in candidates:
            if run.state is RunState.RUNNING and not self._take_chunk(run, budget, chunks):
                return

    def _take_chunk(self, run: TaskRun, budget: Budget, chunks: list[Chunk]) -> bool:
        """Plan some of the run's uncomputed tokens, if the step has room for a useful number."""
        rows = budget.chunk(computed=run.computed_ahead, known=run.known_ahead)
        if not rows:
            return False
        samples = run.computed_ahead + rows == run.known_ahead and not run.prefill_only
        budget.take_chunk(rows, computed=run.computed_ahead, samples=samples)
        chunks.append(Chunk(run, rows, samples))
        return True

    def _plan_admissions(
        self, budget: Budget, chunks: list[Chunk], opens: list[SlotOpening]
    ) -> None:
        """Admit waiting tasks while slots, blocks and the step have room; none in a step that
        preempts, or the two would undo each other.
        """
        while self._free_slots and self.queue.waiting and not self._preempts:
            at = place_to_admit(
                self.queue,
                self.cache,
                self.config,
                num_running=len(self.running),
                fetching=self.fetching.values(),
            )
            if at is None:
                return
            run = self.queue.waiting[at]
            if not budget.chunk(computed=0, known=len(run.tokens)):
                return
            must(take_room(run, self.cache), f"task {run.name} found room that is not there")
            if not self._take_chunk(run, budget, chunks):
                give_room_back(run, self.cache)
                return
            opens.append(self._open(run, at))

    def _admit_alone(self, run: TaskRun) -> SlotOpening | None:
        """Admit a suspect while all others pause, at their cost if it finds no room; None while
        what it needs is lent or on its way.
        """
        while not self._free_slots or not take_room(run, self.cache):
            if self.running:
                self.preempt(victim_for(run, self.running, keep=None))
            elif not self.outside.give_back():
                return None
        self.solo = run
        return self._open(run, self.queue.waiting.index(run))

    def _open(self, run: TaskRun, at: int) -> SlotOpening:
        """Move a run that has its blocks from the queue to a slot."""
        self.queue.take(at)
        for late in self.fetching.values():
            late.passed += late.order < run.order
        run.become(RunState.RUNNING)
        run.slot = self._free_slots.pop()
        self.running[run.id] = run
        self._prefilling = [*self._prefilling, run]
        return opening_of(run)

    def _advance(self, decodes: list[TaskRun], guesses: bytes, chunks: list[Chunk]) -> None:
        """Count the planned rows as computed ahead."""
        planned_out = False
        for run, guess in zip(decodes, guesses, strict=False):
            run.drafts_ahead += max(0, guess - 1)
        for run in decodes:
            run.flights += 1
            run.computed_ahead = run.known_ahead
            run.known_ahead += 1
            if run.known_ahead >= run.known_max:
                planned_out = True
        if planned_out:
            self._decoding = [run for run in self._decoding if run.known_ahead < run.known_max]
        joined: list[TaskRun] = []
        for chunk in chunks:
            run = chunk.run
            run.flights += 1
            run.computed_ahead += chunk.rows
            if chunk.samples:
                run.known_ahead += 1
            if chunk.samples or (run.prefill_only and run.computed_ahead == run.known_ahead):
                joined.append(run)
        if joined:
            self._prefilling = [run for run in self._prefilling if run not in joined]
            self._decoding = self._decoding + [
                run for run in joined if run.known_ahead < run.known_max and not run.prefill_only
            ]
