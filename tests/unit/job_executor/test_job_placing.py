"""Where tasks go, and in which order."""

from front_cases import Front, cancelled, ends, outputs, placed

from tercet.base.ids import task_id
from tercet.job_executor.config import JobExecutorConfig
from tercet.jobs.job import Failure, FailureCode, Finish, TokenLogprobs
from tercet.messages.events import JobCancelled, StopFound
from tercet.messages.wire import TaskUpdate


def test_tasks_are_numbered_prompt_by_prompt_and_choices_share_an_executor() -> None:
    front = Front(executors=2)
    job = front.job((1, 2), (3,), n=3)
    sent = placed(front.submit(job))
    assert [message.task.id for _, message in sent] == [task_id(job.id, i) for i in range(6)]
    assert [message.task.choice for _, message in sent] == [0, 1, 2, 0, 1, 2]
    assert [message.task.prompt for _, message in sent] == [(1, 2)] * 3 + [(3,)] * 3
    assert len({to for to, _ in sent[:3]}) == len({to for to, _ in sent[3:]}) == 1
    assert sent[0][0] != sent[3][0]
    first = task_id(job.id, 0)
    assert [message.leader for _, message in sent[:3]] == [None, first, first]
    assert all(message.reply == "front/0" and not message.alone for _, message in sent)


def test_a_seed_is_drawn_once_for_a_prompt_and_kept() -> None:
    front = Front(executors=1)
    sent = placed(front.submit(front.job((1,), (1,), n=2)))
    seeds = [message.task.sampling.seed for _, message in sent]
    assert None not in seeds
    assert seeds[0] == seeds[1] != seeds[2] == seeds[3]
    kept = {message.task.choice: message.task.sampling.seed for _, message in sent[:2]}
    front.gone(0)
    front.join(1)
    again = placed(front.members(1))
    assert {m.task.choice: m.task.sampling.seed for _, m in again[:2]} == kept
    assert placed(front.submit(front.job((1,), seed=5)))[0][1].task.sampling.seed == 5


def test_work_spreads_by_load() -> None:
    front = Front(executors=2)
    long = placed(front.submit(front.job(tuple(range(2000)))))[0][0]
    others = [placed(front.submit())[0][0] for _ in range(5)]
    assert others == ["executor/1"] * 5
    assert long == "executor/0"


def test_an_executor_has_a_bound_and_the_rest_waits_in_order() -> None:
    front = Front(JobExecutorConfig(max_tasks_per_executor=2), executors=1)
    jobs = [front.job() for _ in range(4)]
    sent = [placed(front.submit(job)) for job in jobs]
    assert [len(one) for one in sent] == [1, 1, 0, 0]
    assert front.machine.standing().num_waiting_tasks == 2
    first = sent[0][0][1].task.id
    freed = front.say(0, TaskUpdate(first, True), TaskUpdate(first, False, (5,), Finish.STOP))
    assert [m.task.id for _, m in placed(freed)] == [task_id(jobs[2].id, 0)]
    front.join(1)
    assert [(to, m.task.id) for to, m in placed(front.members(0, 1))] == [
        ("executor/1", task_id(jobs[3].id, 0))
    ]


def test_a_client_that_goes_away_frees_its_tasks_at_once() -> None:
    front = Front(JobExecutorConfig(max_tasks_per_executor=2), executors=1)
    job, waiting = front.job((1,), (2,), (3,)), front.job()
    sent = placed(front.submit(job))
    front.submit(waiting)
    effects = front.on(JobCancelled(job=job.id))
    assert cancelled(effects) == [("executor/0", m.task.id) for _, m in sent]
    assert ends(effects) == [Finish.CANCELLED] * 3
    assert [m.task.id for _, m in placed(effects)] == [task_id(waiting.id, 0)]
    assert front.on(JobCancelled(job=job.id)) == []
    assert front.say(0, TaskUpdate(sent[0][1].task.id, False, (5,))) == []


def test_a_stop_string_ends_one_task_and_the_rest_goes_on() -> None:
    front = Front(executors=1)
    job = front.job((1,), (2,))
    sent = placed(front.submit(job))
    number = sent[0][1].task.id
    effects = front.on(StopFound(task=number))
    assert cancelled(effects) == [("executor/0", number)]
    assert outputs(effects)[0].finish is Finish.STOP
    assert front.on(StopFound(task=number)) == []
    assert not front.machine.idle
    other = sent[1][1].task.id
    assert ends(front.say(0, TaskUpdate(other, False, (4,), Finish.LENGTH))) == [Finish.LENGTH]
    assert front.machine.idle


def test_pieces_carry_all_that_the_executor_said_and_first_things_once() -> None:
    front = Front(executors=1)
    number = placed(front.submit())[0][1].task.id
    assert front.say(0, TaskUpdate(number, started=True, cached_tokens=1)) == []
    said = TokenLogprobs(5, -0.1, 1)
    prompt = (None, TokenLogprobs(2, -1.0, 1))
    first = TaskUpdate(
        number, tokens=(5,), logprobs=(said,), prompt_logprobs=prompt, cached_tokens=2
    )
    output = outputs(front.say(0, first))[0]
    assert output.tokens == (5,)
    assert output.logprobs == (said,)
    assert output.prompt_logprobs == prompt
    assert output.cached_tokens == 2
    last = TaskUpdate(
        number,
        tokens=(6, 0),
        finish=Finish.STOP,
        stop_token=0,
        cached_tokens=2,
        prompt_logprobs=prompt,
    )
    output = outputs(front.say(0, last))[0]
    assert (output.tokens, output.finish, output.stop_token) == ((6, 0), Finish.STOP, 0)
    assert output.cached_tokens is None
    assert output.prompt_logprobs is None


def test_a_refusal_of_the_executor_reaches_the_client() -> None:
    front = Front(executors=1)
    number = placed(front.submit())[0][1].task.id
    failure = Failure(FailureCode.NO_ROOM, "needs 90 blocks of 64")
    effects = front.say(0, TaskUpdate(number, finish=Finish.FAILED, failure=failure))
    assert outputs(effects)[0].failure == failure
    assert front.machine.idle
