"""What a machine remembers does not depend on how much it has seen (I6).

A map that is never emptied shows in a soak after millions of requests (vllm PR#44490); here every
object that can be reached from a machine is counted, so that hundreds are enough.
"""

import gc
import types
from collections.abc import Callable
from random import Random

from executor_harness import Harness, task
from fake_executors import FakeExecutor, House

from tercet.base.ids import Epoch, Ids, task_id
from tercet.job_executor.config import JobExecutorConfig
from tercet.jobs.job import Job
from tercet.jobs.sampling import SamplingParameters
from tercet.messages.events import JobCancelled, JobSubmitted, StopFound
from tercet.scheduling.config import SchedulingConfig

_STATIC = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, str, int, bytes)
WARM = 5
ROUNDS = 15
SLACK = 1.02


def num_reachable(root: object) -> int:
    """Count the objects behind one, code apart."""
    seen: dict[int, object] = {id(root): root}
    front = [root]
    while front:
        below = gc.get_referents(*front)
        front = []
        for item in below:
            if id(item) not in seen and not isinstance(item, _STATIC):
                seen[id(item)] = item
                front.append(item)
    return len(seen)


def assert_level(machine: object, play: Callable[[], None]) -> None:
    for _ in range(WARM):
        play()
    before = num_reachable(machine)
    for _ in range(ROUNDS):
        play()
    after = num_reachable(machine)
    assert after <= before * SLACK, f"{before} objects became {after}"


def test_a_job_executor_forgets_every_job() -> None:
    """vllm#50150, PR#44490: host memory grows by the request."""
    rand = Random(11)
    ids = Ids(Epoch(1))
    house = House(JobExecutorConfig(max_queued_jobs=12, max_tasks_per_executor=5))
    executors = [FakeExecutor(number, slots=3) for number in range(2)]
    for executor in executors:
        house.join(executor)
    house.members()

    def play() -> None:
        for _ in range(60):
            sampling = SamplingParameters(
                max_tokens=rand.choice([1, 3, 8]), seed=rand.getrandbits(8)
            )
            prompts = ((1, 2), (3,))[: rand.choice([1, 2])]
            job = Job(
                id=ids.job(), model="m", prompts=prompts, sampling=sampling, n=rand.choice([1, 2])
            )
            house.expect(job)
            house.give(JobSubmitted(job=job))
            if rand.random() < 0.5:
                house.work()
            if rand.random() < 0.3:
                house.give(JobCancelled(job=job.id))
            if rand.random() < 0.3:
                house.give(StopFound(task=task_id(job.id, 0)))
            if rand.random() < 0.1:
                executor = rand.choice(executors)
                house.cut(executor)
                house.join(executor)
        while house.work():
            pass
        assert house.machine.idle
        house.streams.clear()
        house.sizes.clear()

    assert_level(house.machine, play)


def test_a_task_executor_forgets_every_task() -> None:
    """sglang#36475: what a client left goes on in a corner; vllm#50150."""
    rand = Random(12)
    harness = Harness(num_blocks=24, scheduling=SchedulingConfig(max_slots=5, max_waiting=12))
    numbers = iter(range(1, 1 << 40))

    def play() -> None:
        for _ in range(60):
            number = next(numbers)
            prompt = rand.choices(range(3), k=rand.choice([2, 20, 70]))
            front = rand.choice(["front/0", "front/1"])
            harness.submit(task(number, prompt, new=rand.choice([1, 5, 30])), front=front)
            for _ in range(rand.choice([0, 1, 4])):
                if harness.plans:
                    harness.step()
            if rand.random() < 0.5:
                harness.cancel(number - rand.choice([0, 0, 1, 3]), front=front)
            if rand.random() < 0.05:
                harness.gone(front)
                harness.joined(front)
        harness.drain()
        load = harness.machine.load()
        assert (load.running, load.waiting, load.blocks_free) == (0, 0, load.blocks_total)

    assert_level(harness.machine, play)
