"""The machine of one task executor: the same object under real and virtual time.

    step n      |=========== runs ===========|
    step n+1              plan -> | queued   |=========== runs ====
                            ^
            late in a long step (so that new tasks join), at once in a short one

At most two plans are under way. A plan holds counts only, so the next can be made before the values
of this one are known; a task that turns out to have ended overruns by one step.
"""

from typing import assert_never

from tercet.base.errors import must
from tercet.base.ids import Address, Epoch, ExecutorId
from tercet.cache.blocks import BlockPool
from tercet.cache.cache import Cache
from tercet.jobs.job import Finish
from tercet.messages.effects import Effect, Fact, RunStep, Send, Wake
from tercet.messages.events import (
    ArenaLent,
    ArenaWithdrawn,
    Moved,
    PeerGone,
    PeerJoined,
    Received,
    StepDone,
    Summed,
    TaskExecutorEvent,
    Woke,
)
from tercet.messages.plan import StepResult
from tercet.messages.wire import CancelTask, Load, SubmitTask, TaskUpdate, TaskUpdates
from tercet.scheduling.batch import Planned
from tercet.scheduling.checks import check_sums, check_whole
from tercet.scheduling.config import SchedulingConfig
from tercet.scheduling.run import TaskRun
from tercet.scheduling.scheduler import Scheduler
from tercet.task_executor.config import Capacity, TaskExecutorConfig
from tercet.task_executor.fronts import Front, Fronts
from tercet.task_executor.partners import WAKE as PARTNERS
from tercet.task_executor.partners import Partners
from tercet.task_executor.refusal import refusal
from tercet.task_executor.results import Outbox, Reconciler
from tercet.transfer.config import TransferConfig

PLANS_UNDER_WAY_MAX = 2
PLAN = "plan"
_FRONT = "front:"
_WAKE_SLACK_NS = 1_000_000_000
_EVENTS_AFTER_WAKE_MAX = 100
"""A wake that is overdue by the slack while so many events came by was forgotten."""


class TaskExecutor:
    """Serves tasks of any number of fronts with one engine."""

    def __init__(
        self,
        config: TaskExecutorConfig,
        *,
        executor: ExecutorId,
        capacity: Capacity,
        scheduling: SchedulingConfig,
        transfer: TransferConfig = TransferConfig(),  # noqa: B008  frozen
    ) -> None:
        self.config = config
        self.executor = executor
        self.capacity = capacity
        pool = BlockPool(capacity.num_blocks, arena=capacity.arena, first=capacity.first_block)
        self.cache = Cache(pool=pool, fingerprint=capacity.fingerprint)
        self.scheduler = Scheduler(scheduling, cost=capacity.cost, cache=self.cache)
        self.fronts = Fronts()
        self.partners = Partners(
            transfer,
            capacity,
            self.scheduler,
            executor=executor,
            order=self._next_order,
            wake=self._wake,
        )
        self.scheduler.outside = self.partners
        self._reconciler = Reconciler(self.scheduler, prompted=self.partners.prompted)
        self._order = 0
        self._step = 0
        self._step_started = 0
        """When the oldest plan under way began to run."""
        self._wakes: dict[str, int] = {}
        """Asked for and not come yet: key -> when."""
        self._now = 0
        self._num_overdue = 0
        self._freed: dict[Address, None] = {}
        """Fronts that hear of room later: that of cancelled and overrun tasks is not free at once,
        and no update of theirs will ever tell of it."""

    # the contract

    def on(self, event: TaskExecutorEvent, now: int) -> list[Effect]:
        """Take an event, plan what can be planned, and answer with what is to be done."""
        effects: list[Effect] = []
        outbox: Outbox = {}
        self._now = now
        self._watch_wakes(event)
        match event:
            case StepDone():
                self._on_step_done(event.result, outbox, effects)
            case Received():
                self._on_received(event, outbox, effects)
            case PeerJoined():
                self._renew(event.peer, event.epoch, effects)
                self.partners.joined(event, now, effects)
            case PeerGone():
                self.partners.gone(event, now, effects)
                if self.fronts.gone(event.peer, event.epoch, now=now):
                    at = now + self.config.front_grace_ns
                    self._wake(at, _FRONT + event.peer, effects)
            case Woke():
                if event.key.startswith(_FRONT):
                    self._on_grace_over(Address(event.key.removeprefix(_FRONT)), effects)
                elif event.key == PARTNERS:
                    self.partners.woke(now, effects)
            case Moved() | Summed() | ArenaLent() | ArenaWithdrawn():
                self.partners.took(event, now, effects)
            case _:
                assert_never(event)
        self._send(outbox, effects)
        self.partners.pump(now, effects)
        self._pump(effects)
        self._tell_freed(effects)
        return effects

    def check(self, *, whole: bool = False) -> None:
        """Raise unless sums, limits and wakes hold; `whole`: every run and block (tests, sim)."""
        num_holding = self.partners.num_holding
        check_sums(self.scheduler, num_elsewhere=num_holding)
        must(
            len(self.scheduler.flights) <= PLANS_UNDER_WAY_MAX,
            f"{len(self.scheduler.flights)} plans are under way",
        )
        must(
            self._num_overdue <= _EVENTS_AFTER_WAKE_MAX,
            f"a wake is overdue while {self._num_overdue} events came: {self._wakes}",
        )
        if whole:
            self.partners.check()
            held = self.partners.held_blocks()
            check_whole(self.scheduler, held, num_elsewhere=num_holding)
            for run in self.scheduler.runs.values():
                must(
                    run.prefill_only or self.fronts.get(run.reply), f"task {run.name} has no front"
                )

    def load(self) -> Load:
        """Give how busy this executor is."""
        scheduler = self.scheduler
        return Load(
            scheduler.num_waiting,
            len(scheduler.running),
            self.cache.available,
            self.capacity.num_blocks,
        )

    # events

    def _on_received(self, event: Received, outbox: Outbox, effects: list[Effect]) -> None:
        message = event.message
        if isinstance(message, SubmitTask):
            known = self.fronts.get(message.reply)
            if known is not None and event.epoch > known.epoch:
                self._renew(message.reply, event.epoch, effects)
            front = self.fronts.submitted(message.reply, event.epoch)
            if front is not None:
                self._submit(message, front, outbox, effects)
        elif isinstance(message, CancelTask):
            run = self.scheduler.runs.get(message.task)
            if run is not None:
                self._end(run, "task.cancelled", effects)
                self._freed[run.reply] = None
        else:
            self.partners.heard(event, self._now, effects)

    def _renew(self, address: Address, epoch: Epoch, effects: list[Effect]) -> None:
        """Note a connection; if it is a new self of the front, end what the former one wanted."""
        if self.fronts.joined(address, epoch):
            self._end_all_of(address, "front.renewed", effects)

    def _submit(
        self, message: SubmitTask, front: Front, outbox: Outbox, effects: list[Effect]
    ) -> None:
        """Queue a task, or say why not. A task that is here already stays if its front can have
        missed nothing; otherwise it begins anew from what the front says the client has.
        """
        present = self.scheduler.runs.get(message.task.id)
        if present is not None:
            same = present.task.generated == message.task.generated
            if same and present.session == front.joins:
                return
            self._end(present, "task.replaced", effects)
        run = TaskRun(
            message, order=self._next_order(), now=self._now, context_max=self.capacity.context_max
        )
        update = refusal(run, self.scheduler, self.capacity)
        if update is not None:
            outbox.setdefault(run.reply, []).append(update)
            code = "finished" if update.failure is None else update.failure.code.value
            effects.append(Fact(name="task.refused", labels=(("code", code),), cause=run.name))
            return
        run.session = front.joins
        fetch = self.partners.wants(run, message.prefill)
        self.scheduler.submit(run, fetch=fetch)
        if fetch:
            self.partners.begin(run, message.prefill, self._now, effects)

    def _next_order(self) -> int:
        self._order += 1
        return self._order

    def _on_step_done(self, result: StepResult, outbox: Outbox, effects: list[Effect]) -> None:
        flights = self.scheduler.flights
        must(flights, f"step {result.step} is done, but none is under way")
        planned = flights.popleft()
        must(
            planned.plan.step == result.step,
            f"step {result.step} is done, but step {planned.plan.step} is under way",
        )
        self._step_started = self._now
        pace = self.scheduler.pace
        if not result.drafted:
            pace.learn(predicted_ns=planned.predicted_ns, taken_ns=result.duration_ns)
        self.scheduler.speculation.learn(planned, result, pace.cost)
        num_tokens = self._reconciler.apply(planned, result, outbox)
        for run, finish in self._reconciler.finished:
            effects.append(self._finished(run, finish))
            self.partners.over(run, effects)
            if run.flights:
                self._freed[run.reply] = None
        self._reconciler.finished.clear()
        self._for_partners(effects)
        effects.append(self._step_fact(planned, result, num_tokens))

    def _for_partners(self, effects: list[Effect]) -> None:
        """Hand on what a step did for others, and what it could not read of others."""
        for run in self._reconciler.computed:
            self.partners.computed(run, effects)
        for run in self._reconciler.stale:
            self.partners.asker.stale(run, effects)
        self._reconciler.computed.clear()
        self._reconciler.stale.clear()

    def _step_fact(self, planned: Planned, result: StepResult, num_tokens: int) -> Fact:
        num_drafted = sum(result.drafted)
        values: tuple[tuple[str, float], ...] = (
            ("tokens", num_tokens),
            ("rows", planned.rows + num_drafted),
            ("duration_s", result.duration_ns / 1e9),
            ("predicted_s", planned.predicted_ns / 1e9),
        )
        if num_drafted:
            num_drafts = len(result.drafted) - result.drafted.count(0)
            num_accepted = self._reconciler.num_accepted
            drafts = (("drafts", num_drafts), ("drafted", num_drafted), ("accepted", num_accepted))
            values += drafts
        return Fact(name="step.done", values=values, cause=f"step {result.step}")

    def _finished(self, run: TaskRun, finish: Finish) -> Fact:
        return Fact(
            name="task.finished",
            values=(
                ("prompt_tokens", run.num_prompt),
                ("generated_tokens", len(run.tokens) - run.num_prompt),
                ("cached_tokens", run.hit),
                ("preemptions", run.preemptions),
                ("duration_s", (self._now - run.submitted) / 1e9),
            ),
            labels=(("finish", finish.value),),
            cause=run.name,
        )

    def _on_grace_over(self, address: Address, effects: list[Effect]) -> None:
        front = self.fronts.get(address)
        if front is None or front.away_since is None:
            return
        due = front.away_since + self.config.front_grace_ns
        if self._now < due:
            self._wake(due, _FRONT + address, effects)
            return
        self._end_all_of(address, "front.lost", effects)
        self.fronts.forget(address)

    def _end_all_of(self, address: Address, reason: str, effects: list[Effect]) -> None:
        """End every task that replies to an address; nobody is told: nobody is there."""
        runs = [run for run in self.scheduler.runs.values() if run.reply == address]
        for run in runs:
            self._end(run, "task.cancelled", effects)
        effects.append(Fact(name=reason, values=(("tasks", len(runs)),), cause=address))

    def _end(self, run: TaskRun, name: str, effects: list[Effect]) -> None:
        self.scheduler.end(run)
        self.partners.over(run, effects)
        effects.append(
            Fact(name=name, values=(("tokens", len(run.tokens) - run.num_prompt),), cause=run.name)
        )

    # planning

    def _pump(self, effects: list[Effect]) -> None:
        """Plan until two plans are under way, nothing can be planned, or it is too early."""
        scheduler = self.scheduler
        while len(scheduler.flights) < PLANS_UNDER_WAY_MAX and scheduler.has_work:
            if scheduler.flights:
                due = self._plan_due(scheduler.flights[0])
                if self._now < due:
                    if self._wakes.get(PLAN) != due:
                        self._wake(due, PLAN, effects)
                    return
            planned = scheduler.plan(self._step + 1)
            self._tell_preempted(effects)
            if planned is None:
                return
            self._step += 1
            if len(scheduler.flights) == 1:
                self._step_started = self._now
            self._launch(planned, effects)

    def _plan_due(self, running: Planned) -> int:
        """Give when the step after the running one should be planned."""
        predicted_ns = running.predicted_ns
        if predicted_ns < self.config.late_plan_ns:
            return self._step_started
        return self._step_started + predicted_ns - self.config.plan_margin_ns

    def _launch(self, planned: Planned, effects: list[Effect]) -> None:
        """Tell who starts, then ask for the step: a death from now on is blamed on the right."""
        outbox: Outbox = {}
        for run in planned.opened:
            if run.prefill_only:
                continue  # its asker hears of blocks, and of nothing else
            outbox.setdefault(run.reply, []).append(TaskUpdate(run.id, started=True))
            effects.append(
                Fact(
                    name="task.admitted",
                    values=(
                        ("waited_s", (self._now - run.submitted) / 1e9),
                        ("prompt_tokens", run.num_prompt),
                        ("cached_tokens", run.hit),
                        ("passed", run.passed),
                    ),
                    cause=run.name,
                )
            )
        self._send(outbox, effects)
        step = planned.plan.step
        self.partners.planned(planned, effects)
        effects.append(
            RunStep(plan=planned.plan, predicted_ns=planned.predicted_ns, cause=f"step {step}")
        )

    def _tell_preempted(self, effects: list[Effect]) -> None:
        for run in self.scheduler.preempted:
            values = (("tokens", float(len(run.tokens))), ("times", float(run.preemptions)))
            effects.append(Fact(name="task.preempted", values=values, cause=run.name))
            self.partners.preempted(run, effects)
        self.scheduler.preempted.clear()
        self.partners.tell_returns(effects)

    # effects

    def _send(self, outbox: Outbox, effects: list[Effect]) -> None:
        if not outbox:
            return
        load = self.load()
        for address, updates in outbox.items():
            message = TaskUpdates(executor=self.executor, updates=tuple(updates), load=load)
            effects.append(Send(to=address, message=message))

    def _tell_freed(self, effects: list[Effect]) -> None:
        """Say how much room there is, once what was given up is free."""
        if self._freed and not self.scheduler.leaving:
            self._send({address: [] for address in self._freed}, effects)
            self._freed.clear()

    def _wake(self, at: int, key: str, effects: list[Effect]) -> None:
        self._wakes[key] = at
        effects.append(Wake(at=at, key=key))

    def _watch_wakes(self, event: TaskExecutorEvent) -> None:
        if isinstance(event, Woke):
            self._wakes.pop(event.key, None)
        if self._wakes and min(self._wakes.values()) + _WAKE_SLACK_NS < self._now:
            self._num_overdue += 1
        else:
            self._num_overdue = 0
