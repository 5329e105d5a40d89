"""The choice of threads follows what steps really take, and settles."""

from tercet.engine.threads import PROBE_STEPS_MAX, ThreadChoice

PREDICTED = 30_000_000


def run(choice: ThreadChoice, slowness: dict[int, float], steps: int) -> list[int]:
    """Threads of each step on a machine where so many threads take so many times the prediction."""
    used = []
    for _ in range(steps):
        threads = choice.threads
        used.append(threads)
        choice.learn(taken_ns=int(slowness[threads] * PREDICTED), predicted_ns=PREDICTED)
    return used


def test_a_quiet_machine_keeps_all_threads_but_for_rare_probes() -> None:
    used = run(ThreadChoice(2), {1: 1.6, 2: 1.0}, 4000)
    assert used.count(1) < 4000 / PROBE_STEPS_MAX + 8
    assert used[:10] == [2] * 10


def test_a_crowded_machine_gets_one_thread_within_a_few_steps() -> None:
    choice = ThreadChoice(2)
    run(choice, {1: 1.6, 2: 1.0}, 200)
    used = run(choice, {1: 2.0, 2: 15.0}, 1000)
    assert used[:20].count(2) < 5
    assert used.count(2) < 20


def test_all_threads_come_back_when_the_crowd_has_gone() -> None:
    choice = ThreadChoice(2)
    run(choice, {1: 2.0, 2: 15.0}, 2000)
    used = run(choice, {1: 1.6, 2: 1.0}, 2 * PROBE_STEPS_MAX)
    assert used[-10:].count(2) >= 9


def test_an_executor_born_in_a_crowd_finds_its_threads_later() -> None:
    used = run(ThreadChoice(4, first=1), {1: 1.0, 4: 0.4}, 200)
    assert used[0] == 1
    assert used[-1] == 4


def test_one_thread_is_no_choice() -> None:
    assert set(run(ThreadChoice(1), {1: 50.0}, 300)) == {1}


def test_steps_too_short_to_tell_are_not_counted() -> None:
    choice = ThreadChoice(2)
    for _ in range(300):
        assert choice.threads == 2
        choice.learn(taken_ns=1_000_000, predicted_ns=1000)
