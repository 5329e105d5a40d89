"""What computing would take: the other side of every decision to fetch."""

from executor_harness import Harness, task

from tercet.messages.plan import StepCost
from tercet.messages.wire import SubmitTask
from tercet.scheduling.run import TaskRun
from tercet.task_executor.weighing import prefill_ns, queue_ns, saved_ns

COST = StepCost(base_ns=1e6, per_row_ns=1000.0, per_logit_ns=0.0, per_pair_ns=2.0)


def test_a_long_prefill_pays_for_every_step():
    one = prefill_ns(COST, computed=0, known=1000, step_ns_max=10**9)
    assert one == COST.predict_ns(rows=1000, logits=0, pairs=500_500)
    many = prefill_ns(COST, computed=0, known=1000, step_ns_max=2_000_000)
    assert many == one + 2e6, "two milliseconds of rows need two more steps"


def test_attention_over_what_is_fetched_is_not_saved():
    saved = saved_ns(COST, begun=128, ends=[256, 384, 1000], known=1024, step_ns_max=10**9)
    assert saved == sorted(saved)
    rest = prefill_ns(COST, computed=1000, known=1024, step_ns_max=10**9)
    whole = prefill_ns(COST, computed=128, known=1024, step_ns_max=10**9)
    assert saved[-1] == whole - rest
    rows_alone = 872 * COST.per_row_ns
    assert saved[-1] > rows_alone, "pairs among the fetched tokens are saved too"


def test_prompts_before_a_task_are_its_queue():
    house = Harness(cost=COST, num_blocks=8)
    for number, tokens in ((1, 100), (2, 90), (3, 50)):
        house.submit(task(number, range(1, tokens + 1)))
    assert len(house.machine.scheduler.queue.waiting) == 2
    between = TaskRun(
        SubmitTask(task=task(9, [1]), reply="front/0"), order=3, now=0, context_max=512
    )
    assert queue_ns(house.machine.scheduler, between) == 90 * COST.per_row_ns
