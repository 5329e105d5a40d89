"""What a step's result means for its tasks: tokens to tell, blocks to index, ends.

A plan's counts are exact unless the task has ended: then the slot dropped its rows. Where guesses
were verified, so many more tokens may come. A result that says anything else is a broken engine,
and going on would mix up somebody's text. A task that ended or was cancelled while the step was
under way is passed by: its tokens are nobody's and its blocks come back once no plan names it.
"""

from array import array
from collections.abc import Callable

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS, Address
from tercet.jobs.job import Finish, TokenLogprobs
from tercet.messages.plan import FINISH_NONE, FINISH_STOP, StepResult
from tercet.messages.wire import TaskUpdate
from tercet.scheduling.batch import Planned
from tercet.scheduling.run import TaskRun
from tercet.scheduling.scheduler import Scheduler
from tercet.scheduling.states import RunState

Outbox = dict[Address, list[TaskUpdate]]


def _i4(data: bytes) -> "array[int]":
    values = array("i")
    values.frombytes(data)
    return values


def _deviation(planned: Planned, position: int, *, gained: int, computed: int) -> str:
    plan, run = planned.plan, planned.runs[position]
    return (
        f"step {plan.step}: task {run.name} had {run.computed} tokens computed, "
        f"{_i4(plan.rows)[position]} rows were planned and {plan.samples[position]} token, "
        f"guesses {plan.guesses[position] if plan.guesses else 0}; "
        f"the result says {computed} computed and {gained} gained"
    )


class Reconciler:
    """Applies results to the runs of a scheduler."""

    def __init__(
        self, scheduler: Scheduler, *, prompted: Callable[[TaskRun], None] = lambda _: None
    ) -> None:
        """`prompted` hears of each run whose prompt a step computed parts of."""
        self._scheduler = scheduler
        self._prompted = prompted
        self.finished: list[tuple[TaskRun, Finish]] = []
        """Since it was last emptied."""
        self.computed: list[TaskRun] = []
        """Prefills for others that became complete, since it was last emptied."""
        self.stale: list[TaskRun] = []
        """Those whose borrowed blocks were others, since it was last emptied."""
        self.num_accepted = 0
        """Guesses that turned out to be right in the last step that was applied."""

    def apply(self, planned: Planned, result: StepResult, outbox: Outbox) -> int:
        """Update all runs of a plan, put what they gained into the outbox, count the tokens."""
        runs = planned.runs
        counts, computed, finishes = _i4(result.counts), _i4(result.computed), result.finishes
        tokens = _i4(result.tokens)
        must(
            len(counts) == len(computed) == len(finishes) == len(runs)
            and sum(counts) == len(tokens),
            f"step {result.step}: {len(runs)} slots planned, results for {len(counts)}, "
            f"{len(computed)} and {len(finishes)}; {len(tokens)} tokens for {sum(counts)} counted",
        )
        logprobs = dict(result.logprobs)
        for position, entries in result.prompt_logprobs:
            runs[position].prompt_logprobs.extend(entries)
        rows, samples = _i4(planned.plan.rows), planned.plan.samples
        guesses = planned.plan.guesses
        ended = RunState.ENDED
        stale = _i4(result.stale)
        self.num_accepted = taken = at = 0
        for position, run in enumerate(runs):
            count = counts[position]
            gained = tokens[at : at + count]
            at += count
            run.flights -= 1
            lost = bool(stale) and position in stale
            if lost or run.state is ended:
                self._pass_by(run, lost=lost, drafts=guesses[position] - 1 if guesses else 0)
                continue
            taken += count
            accepted = count - samples[position]
            drafts = guesses[position] - 1 if guesses and guesses[position] else 0
            if (
                not 0 <= accepted <= drafts
                or computed[position] != run.computed + rows[position] + accepted
            ):
                must(
                    False, _deviation(planned, position, gained=count, computed=computed[position])
                )
            if drafts:
                self.num_accepted += accepted
                self._scheduler.verified(run, drafts=drafts, accepted=accepted)
            if result.guessed and result.guessed[position]:
                run.acceptance.learn(
                    drafted=result.drafted[position] if result.drafted else 0,
                    accepted=accepted,
                    guessed=result.guessed[position],
                )
            self._progress(run, gained, computed[position])
            end = self._end_of(run, finishes[position])
            if count or end is not None:
                update = self._update(run, gained, end, logprobs.get(position))
                outbox.setdefault(run.reply, []).append(update)
            self._settle(run, end)
            if run.prefill_only and run.computed == len(run.tokens) and run.state is not ended:
                self.computed.append(run)
        return taken

    def _pass_by(self, run: TaskRun, *, lost: bool, drafts: int) -> None:
        """Nothing of the step counts for a run: it ended meanwhile, or the step read blocks that
        were not what it was lent, and then it begins anew.
        """
        if lost and run.state is not RunState.ENDED:
            run.drafts_ahead -= max(0, drafts)
            self.stale.append(run)
            self._scheduler.lose_borrowed(run)
        if not run.flights and run.state in (RunState.LEAVING, RunState.ENDED):
            self._scheduler.landed(run)

    def _progress(self, run: TaskRun, gained: "array[int]", computed: int) -> None:
        """Add tokens and computed rows to a run, and let others find its full blocks."""
        before = run.computed
        run.computed = computed
        run.tokens.extend(gained)
        if gained and not run.told_first:
            self._scheduler.first_token(run)
        if before < run.num_prompt or computed // BLOCK_TOKENS != before // BLOCK_TOKENS:
            self._scheduler.computed(run)
        if before < run.num_prompt:
            self._prompted(run)

    def _settle(self, run: TaskRun, end: Finish | None) -> None:
        """Carry out the end of a run, or the rest of its preemption."""
        if end is not None:
            self.finished.append((run, end))
            self._scheduler.end(run)
        elif run.state is RunState.LEAVING and not run.flights:
            self._scheduler.landed(run)

    def _end_of(self, run: TaskRun, finish: int) -> Finish | None:
        """Give how the run ended in this step, if it did. A task whose length is used up ends
        even where the slot did not say so: nothing more will be planned for it.
        """
        if finish != FINISH_NONE:
            return Finish.STOP if finish == FINISH_STOP else Finish.LENGTH
        return Finish.LENGTH if len(run.tokens) >= run.known_max else None

    def _update(
        self,
        run: TaskRun,
        gained: "array[int]",
        end: Finish | None,
        logprobs: tuple[TokenLogprobs, ...] | None,
    ) -> TaskUpdate:
        if run.told_first and end is None and logprobs is None:
            return TaskUpdate(run.id, False, tuple(gained))
        first = not run.told_first
        run.told_first = True
        entries = run.prompt_logprobs if first and not run.task.generated else ()
        return TaskUpdate(
            run.id,
            tokens=tuple(gained),
            finish=end,
            logprobs=logprobs,
            prompt_logprobs=tuple(entries) if entries else None,
            cached_tokens=run.hit if first else None,
            stop_token=gained[-1] if end is Finish.STOP and gained else None,
        )
