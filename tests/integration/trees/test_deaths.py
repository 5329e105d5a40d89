"""Pieces of a running tree die one after another, and clients notice only what they must."""

import signal

import psutil
import pytest
from house import House, until

LONG = 400


@pytest.fixture(scope="module")
def undisturbed(house: House) -> str:
    return house.complete(max_tokens=LONG)


def all_back(house: House) -> bool:
    """Both executors serve: readiness alone takes one."""
    return (
        len(house.executors()) == 2
        and house.ready()
        and house.client.get("/health").json()["executors_ready"] == "2"
    )


def test_processes_are_named_as_promised(house: House) -> None:
    names = house.processes()
    assert {
        "tercet: supervisor",
        "tercet: front",
        "tercet: node agent",
        "tercet: zygote",
        "tercet: task executor 0 colocated tiny",
        "tercet: task executor 1 colocated tiny",
    } == set(names)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_or_frozen_executor_is_replaced_and_its_stream_goes_on(
    house: House, undisturbed: str, number: int
) -> None:
    """vllm#39863: an engine that is dead or frozen; here its clients get the same text."""
    before = house.executors()
    streams = [house.stream(max_tokens=LONG).after(3) for _ in range(4)]
    for executor in before:
        house.kill(executor, number)
    assert {stream.finish() for stream in streams} == {undisturbed}
    until(lambda: all_back(house), "two new executors")
    assert not set(before) & set(house.executors())


def test_an_agent_may_die_while_executors_go_on(house: House, undisturbed: str) -> None:
    executors, agent = house.executors(), house.pid("tercet: node agent")
    stream = house.stream(max_tokens=LONG).after(3)
    house.kill(agent)
    assert stream.finish() == undisturbed
    until(lambda: house.pids("tercet: node agent") not in ([], [agent]), "another agent")
    assert house.executors() == executors
    assert house.ready()


def test_a_new_agent_still_notices_deaths_and_hangs(house: House, undisturbed: str) -> None:
    for number in (signal.SIGKILL, signal.SIGSTOP):
        executors = house.executors()
        stream = house.stream(max_tokens=LONG).after(3)
        for executor in executors:
            house.kill(executor, number)
        assert stream.finish() == undisturbed
        until(lambda: all_back(house), "two new executors")


def test_an_executor_that_froze_before_its_agent_died_is_not_waited_for(
    house: House, undisturbed: str
) -> None:
    """It never registers with the new agent, which waited for it as for one that starts."""
    frozen, agent = house.executors(), house.pid("tercet: node agent")
    stream = house.stream(max_tokens=LONG).after(3)
    for pid in frozen:
        house.kill(pid, signal.SIGSTOP)
    house.kill(agent)
    assert stream.finish() == undisturbed
    until(lambda: all_back(house), "two new executors")
    assert not {*frozen} & {*house.executors()}


def test_a_zygote_may_die(house: House, undisturbed: str) -> None:
    zygote, executors = house.pid("tercet: zygote"), house.executors()
    stream = house.stream(max_tokens=LONG).after(3)
    house.kill(zygote)
    assert stream.finish() == undisturbed
    until(lambda: house.pids("tercet: zygote") not in ([], [zygote]), "another zygote")
    assert house.executors() == executors
    house.kill(executors[0])
    until(lambda: all_back(house) and executors[0] not in house.executors(), "a new executor")


def test_a_frozen_zygote_is_replaced_when_it_is_needed(house: House) -> None:
    zygote, executors = house.pid("tercet: zygote"), house.executors()
    house.kill(zygote, signal.SIGSTOP)
    house.kill(executors[0])
    until(lambda: all_back(house) and executors[0] not in house.executors(), "a new executor")
    assert house.pid("tercet: zygote") != zygote


@pytest.mark.parametrize("title", ["tercet: front", "tercet: node agent", "tercet: zygote"])
def test_whoever_kills_one_process_again_and_again_does_not_end_the_house(
    house: House, title: str, undisturbed: str
) -> None:
    executors = house.executors()
    for _ in range(7):
        pid = house.pid(title)
        house.kill(pid)
        until(lambda pid=pid: house.pids(title) not in ([], [pid]), f"another {title}")  # type: ignore[misc]
    until(lambda: all_back(house) and house.ready(), "the house")
    assert house.executors() == executors
    assert house.complete(max_tokens=LONG) == undisturbed


def test_a_front_may_die_and_its_streams_close(house: House, undisturbed: str) -> None:
    executors, front = house.executors(), house.pid("tercet: front")
    stream = house.stream(max_tokens=4000).after(3)
    house.kill(front)
    stream.wait()
    assert stream.broken
    until(lambda: house.pids("tercet: front") not in ([], [front]) and house.ready(), "a front")
    assert house.executors() == executors
    assert house.complete(max_tokens=LONG) == undisturbed
    until(lambda: gauge(house, "vllm:num_requests_running") == 0, "the former front's jobs end")


def test_a_client_that_leaves_frees_its_job(house: House) -> None:
    """llama.cpp#24496: a disconnect that nobody notices."""
    streams = [house.stream(max_tokens=4000).after(2) for _ in range(6)]
    for stream in streams:
        stream.leave()
    until(lambda: '"jobs_running":"0"' in house.client.get("/health").text, "no job runs")
    assert house.ready()


def test_everything_but_the_supervisor_may_die_at_once(house: House, undisturbed: str) -> None:
    """dynamo#732: killing one component fails requests for seconds; here all of them are killed."""
    pids = [pid for name, pids in house.processes().items() for pid in pids]
    pids.remove(house.tree.process.pid)
    for pid in pids:
        house.kill(pid)
    until(lambda: all_back(house) and not {*pids} & {*house.executors()}, "a whole new tree")
    assert house.complete(max_tokens=LONG) == undisturbed


def test_frozen_executors_turn_readiness_within_their_bound(house: House) -> None:
    """vllm#39863: an engine that is frozen while `/health` still says 200.

    The zygote is stopped too: else a new executor may be ready before the second is found frozen.
    """
    zygote, frozen = house.pid("tercet: zygote"), house.executors()
    for pid in (zygote, *frozen):
        house.kill(pid, signal.SIGSTOP)
    until(lambda: house.client.get("/ready").status_code == 503, "readiness off")
    until(lambda: all_back(house) and not {*frozen} & {*house.executors()}, "two new executors")


def test_deaths_leave_no_descriptor_behind(house: House) -> None:
    names = ("tercet: supervisor", "tercet: node agent", "tercet: zygote", "tercet: front")

    def descriptors() -> dict[str, int]:
        return {name: psutil.Process(house.pid(name)).num_fds() for name in names}

    house.complete()
    until(lambda: all_back(house), "two executors")
    before = descriptors()
    for _ in range(3):
        executors = house.executors()
        for executor in executors:
            house.kill(executor)
        until(lambda gone=executors: all_back(house) and not {*gone} & {*house.executors()}, "new")
    house.complete()
    # What was just closing as it began may be gone now; six deaths would leave six behind.
    until(
        lambda: all(num <= before[name] for name, num in descriptors().items()),
        f"no more descriptors than {before}",
    )


def gauge(house: House, name: str) -> float:
    lines = house.client.get("/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))
