"""Lost executors, broken connections, and what may still be said over them."""

from front_cases import Front, cancelled, ends, outputs, placed, ready

from tercet.base.ids import Address, Epoch, index_of, job_of
from tercet.job_executor.config import JobExecutorConfig
from tercet.jobs.job import Finish, TokenLogprobs
from tercet.messages.events import JobCancelled, Received
from tercet.messages.wire import Members, TaskUpdate


def test_lost_tasks_go_on_elsewhere_from_what_the_client_has() -> None:
    front = Front(executors=1)
    front.join(1)
    front.members(0, 1)
    number = placed(front.submit())[0][1].task.id
    front.say(0, TaskUpdate(number, True), TaskUpdate(number, tokens=(5, 6)))
    ((to, message),) = placed(front.gone(0))
    assert (to, message.task.generated, message.alone) == ("executor/1", (5, 6), False)
    assert front.say(0, TaskUpdate(number, tokens=(7,))) == [], "its former executor is not heard"
    said = outputs(front.say(1, TaskUpdate(number, True), TaskUpdate(number, tokens=(7,))))
    assert [output.tokens for output in said] == [(7,)]


def test_absence_from_a_settled_list_is_loss_and_from_another_is_nothing() -> None:
    front = Front(executors=2)
    number = placed(front.submit())[0][1].task.id
    assert placed(front.members(1, settled=False)) == []
    effects = front.members(1)
    assert [to for to, _ in placed(effects)] == ["executor/1"]
    assert cancelled(effects) == [("executor/0", number)], "it still stands and computes"


def test_older_lists_are_ignored_by_epoch_and_version() -> None:
    front = Front(executors=2)
    front.submit()
    stale = Members(version=0, executors=(), settled=True)
    assert front.on(Received(sender=Address("cluster"), epoch=Epoch(3), message=stale)) == []
    former = Members(version=99, executors=(), settled=True)
    assert front.on(Received(sender=Address("cluster"), epoch=Epoch(2), message=former)) == []
    newer = Members(version=0, executors=(ready(1),), settled=True)
    assert placed(front.on(Received(sender=Address("cluster"), epoch=Epoch(4), message=newer)))


def test_without_another_executor_tasks_wait_for_the_replacement_in_their_order() -> None:
    front = Front(JobExecutorConfig(max_tasks_per_executor=2), executors=1)
    jobs = [front.job() for _ in range(4)]
    for job in jobs:
        front.submit(job)
    assert placed(front.gone(0)) == []
    assert not front.machine.ready
    front.join(1)
    sent = placed(front.members(1))
    assert [job_of(m.task.id) for _, m in sent] == [jobs[0].id, jobs[1].id]


def test_late_words_about_an_older_placement_are_told_apart() -> None:
    """The same executor comes back and still speaks of what it computed meanwhile."""
    front = Front(executors=1)
    number = placed(front.submit())[0][1].task.id
    front.say(0, TaskUpdate(number, True), TaskUpdate(number, tokens=(5,)))
    front.gone(0)
    effects = front.join(0)
    assert cancelled(effects) == [("executor/0", number)]
    ((_, again),) = placed(effects)
    assert again.task.generated == (5,)
    assert job_of(again.task.id) == job_of(number)
    assert front.say(0, TaskUpdate(number, tokens=(7,))) == [], "6 was lost: 7 would leave a gap"
    assert front.say(0, TaskUpdate(number, finish=Finish.LENGTH)) == []
    said = outputs(front.say(0, TaskUpdate(again.task.id, True, tokens=(6,))))
    assert [(o.task, o.tokens) for o in said] == [(number, (6,))]


def test_cancels_that_may_have_been_lost_are_said_again() -> None:
    front = Front(executors=1)
    job = front.job()
    number = placed(front.submit(job))[0][1].task.id
    front.on(JobCancelled(job=job.id))
    front.gone(0)
    assert cancelled(front.join(0)) == [("executor/0", number)]


def test_a_new_incarnation_knows_nothing_of_the_old_one() -> None:
    front = Front(executors=1)
    number = placed(front.submit())[0][1].task.id
    front.gone(0)
    effects = front.join(0, epoch=200)
    assert cancelled(effects) == []
    assert [m.task.id for _, m in placed(effects)] == [number]
    assert front.join(0, epoch=150) == [], "an older self is not believed"


def test_a_connection_that_replaces_another_counts_as_broken_first() -> None:
    front = Front(executors=1)
    number = placed(front.submit())[0][1].task.id
    effects = front.join(0)
    assert cancelled(effects) == [("executor/0", number)]
    assert len(placed(effects)) == 1


def test_only_who_could_have_done_it_is_a_suspect() -> None:
    front = Front(executors=1)
    done, begun, queued = (placed(front.submit())[0][1].task.id for _ in range(3))
    front.say(0, TaskUpdate(done, True, tokens=(5,)), TaskUpdate(begun, True))
    assert queued
    front.gone(0)
    front.join(1)
    sent = {m.task.id: m.alone for _, m in placed(front.members(1))}
    assert sent == {done: False, begun: True, queued: False}


def test_one_suspect_at_a_time_and_a_token_clears_it() -> None:
    front = Front(executors=1)
    numbers = [placed(front.submit())[0][1].task.id for _ in range(3)]
    front.say(0, *(TaskUpdate(number, True) for number in numbers))
    front.gone(0)
    front.join(1)
    assert [m.task.id for _, m in placed(front.members(1))] == [numbers[0]]
    effects = front.say(1, TaskUpdate(numbers[0], True), TaskUpdate(numbers[0], tokens=(5,)))
    ((_, second),) = placed(effects)
    assert (second.task.id, second.alone) == (numbers[1], True)
    front.gone(1)
    front.join(2)
    sent = [(m.task.id, m.alone) for _, m in placed(front.members(2))]
    assert (numbers[0], False) in sent, "it gained a token: it is free again"


def test_a_connection_that_broke_without_a_death_blames_nobody() -> None:
    front = Front(JobExecutorConfig(max_tries=2), executors=1)
    number = placed(front.submit())[0][1].task.id
    for _ in range(10):
        front.say(0, TaskUpdate(number, True))
        assert ends(front.gone(0)) == []
        ((_, again),) = placed(front.join(0))
        assert not again.alone
        number = again.task.id


def test_prompt_logprobs_are_not_computed_again() -> None:
    front = Front(executors=1)
    number = placed(front.submit(front.job(prompt_logprobs=2)))[0][1].task.id
    front.say(0, TaskUpdate(number, True, (5,), prompt_logprobs=(None, TokenLogprobs(1, -1.0, 1))))
    front.gone(0)
    front.join(1)
    ((_, again),) = placed(front.members(1))
    assert again.task.sampling.prompt_logprobs is None
    assert again.task.sampling.max_tokens == 8


def test_a_task_that_lacks_only_its_end_is_ended() -> None:
    front = Front(executors=1)
    number = placed(front.submit(front.job(max_tokens=2)))[0][1].task.id
    front.say(0, TaskUpdate(number, True, (5, 6)))
    assert ends(front.gone(0)) == [Finish.LENGTH]
    assert front.machine.idle


def test_a_huge_job_whose_names_are_used_up_fails_instead_of_lying() -> None:
    front = Front(JobExecutorConfig(max_tasks_per_executor=4096), executors=1)
    front.submit(front.job(*((n,) for n in range(3000))))
    front.gone(0)
    effects = front.join(0)
    again = [index_of(message.task.id) for _, message in placed(effects)]
    assert again == list(range(3000, 4096)), "as many as there are names"
    assert ends(effects) == [Finish.FAILED] * (3000 - 1096)
    assert all(o.failure and "broke again" in o.failure.detail for o in outputs(effects))


def test_only_the_cluster_says_who_is_a_member() -> None:
    front = Front(executors=2)
    front.submit()
    strange = Members(version=99, executors=(), settled=True)
    sender = Address("executor/1")
    assert front.on(Received(sender=sender, epoch=Epoch(101), message=strange)) == []
    assert placed(front.submit()), "both are members still"
