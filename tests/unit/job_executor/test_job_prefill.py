"""Tasks on executors that decode, with prompts that others compute."""

from front_cases import Front, cancelled, ends, placed, ready

from tercet.base.ids import Address, Epoch
from tercet.job_executor.config import JobExecutorConfig
from tercet.jobs.job import Finish, Job
from tercet.messages.events import JobCancelled, Received
from tercet.messages.wire import Members, Role, SubmitTask, TaskUpdate

LONG = tuple(range(1, 101))
P, D, C = Role.PREFILL, Role.DECODE, Role.COLOCATED


def house(*roles: Role, config: JobExecutorConfig | None = None) -> Front:
    """A front with an executor of each role, by number."""
    front = Front(config)
    for number in range(len(roles)):
        front.join(number)
    cast(front, *roles)
    return front


def cast(front: Front, *roles: Role) -> None:
    front.version += 1
    named = tuple(ready(number, role=role) for number, role in enumerate(roles))
    message = Members(version=front.version, executors=named, settled=True)
    front.on(Received(sender=Address("cluster"), epoch=Epoch(3), message=message))


def places(front: Front, job: Job | None = None) -> list[tuple[str, str | None]]:
    """Where a job's tasks go, and who computes their prompts."""
    return [(to, sent.prefill) for to, sent in placed(front.submit(job or front.job(LONG)))]


def test_a_long_prompt_is_computed_by_one_and_decoded_by_another() -> None:
    assert places(house(P, D)) == [("executor/1", "executor/0")]


def test_a_short_prompt_is_computed_where_it_is_decoded() -> None:
    front = house(P, D)
    assert places(front, front.job(tuple(range(32)))) == [("executor/1", None)]
    assert places(front, front.job(tuple(range(33)))) == [("executor/1", "executor/0")]


def test_who_wants_to_know_of_its_prompt_has_it_computed_where_it_is_decoded() -> None:
    front = house(P, D)
    assert places(front, front.job(LONG, prompt_logprobs=1)) == [("executor/1", None)]


def test_colocated_executors_compute_their_prompts_themselves() -> None:
    assert places(house(P, C)) == [("executor/1", None)]
    assert places(house(D)) == [("executor/0", None)]


def test_prefill_executors_take_whole_tasks_only_where_nobody_else_is() -> None:
    assert places(house(P)) == [("executor/0", None)]


def test_prompts_go_to_the_prefill_executor_with_the_least_before_it() -> None:
    front = house(P, P, D)
    first = [places(front)[0][1] for _ in range(4)]
    assert first == ["executor/0", "executor/1", "executor/0", "executor/1"]


def test_a_prompt_is_no_load_any_more_once_its_task_has_a_token() -> None:
    front = house(P, P, D)
    job = front.job(LONG)
    [(_, sent)] = placed(front.submit(job))
    assert sent.prefill == "executor/0"
    front.say(2, TaskUpdate(sent.task.id, started=True), TaskUpdate(sent.task.id, tokens=(5,)))
    assert places(front) == [("executor/2", "executor/0")]


def test_a_cancelled_one_is_no_load_either() -> None:
    front = house(P, P, D)
    job = front.job(LONG)
    [(_, sent)] = placed(front.submit(job))
    effects = front.on(JobCancelled(job=job.id))
    assert cancelled(effects) == [("executor/2", sent.task.id)]
    assert ends(effects) == [Finish.CANCELLED]
    assert places(front) == [("executor/2", "executor/0")]


def test_the_death_of_a_prefill_executor_moves_no_task() -> None:
    """Its askers compute for themselves; ai-dynamo/dynamo#13691 lost the request instead."""
    front = house(P, P, D)
    places(front)
    assert placed(front.gone(0)) == []
    assert places(front) == [("executor/2", "executor/1")]


def test_the_death_of_a_decoding_executor_moves_its_tasks_with_what_the_client_has() -> None:
    front = house(P, D, D)
    [(to, sent)] = placed(front.submit(front.job(LONG)))
    assert to == "executor/1"
    front.say(1, TaskUpdate(sent.task.id, started=True), TaskUpdate(sent.task.id, tokens=(7,)))
    [(other, again)] = placed(front.gone(1))
    assert (other, again.prefill, again.task.generated) == ("executor/2", "executor/0", (7,))


def test_roles_that_change_count_for_what_comes_next() -> None:
    front = house(P, D)
    places(front)
    cast(front, C, C)
    assert [prefill for _, prefill in places(front)] == [None]
    cast(front, D, P)
    assert places(front) == [("executor/0", "executor/1")]


AFFINE = JobExecutorConfig(routing="prefix_affinity")


OTHER = tuple(range(500, 600))


def done(front: Front, prompt: tuple[int, ...]) -> SubmitTask:
    """Submit a prompt and let it end after one token."""
    [(to, sent)] = placed(front.submit(front.job(prompt)))
    ended = TaskUpdate(sent.task.id, tokens=(5,), finish=Finish.LENGTH)
    front.say(int(to.partition("/")[2]), TaskUpdate(sent.task.id, started=True), ended)
    return sent


def test_with_affinity_a_prompt_goes_where_it_was_before() -> None:
    front = house(C, C, config=AFFINE)
    places(front)
    assert places(front, front.job(OTHER))[0][0] == "executor/1"
    assert places(front, front.job((*OTHER, 7)))[0][0] == "executor/1"
    assert places(front, front.job((*OTHER, 8)))[0][0] == "executor/0", "too much waits there"
    front.gone(1)
    front.join(1)
    assert places(front, front.job((*OTHER, 9)))[0][0] == "executor/1", "the least, nothing cached"


def test_with_affinity_prompts_go_to_the_prefill_executor_that_has_them() -> None:
    front = house(P, P, D, config=AFFINE)
    assert done(front, LONG).prefill == "executor/0"
    places(front, front.job(tuple(range(50))))
    assert done(front, OTHER).prefill == "executor/1"
    front = house(P, P, D, config=AFFINE)
    done(front, LONG)
    assert [done(front, LONG).prefill for _ in range(3)] == ["executor/0"] * 3
