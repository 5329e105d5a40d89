from collections.abc import Sequence

from tercet.messages.effects import Effect
from tercet.sim.arrivals import Arrival, TraceClients, prompt_of
from tercet.sim.run import Run
from tercet.sim.scenario import ClusterSpec, Scenario, WorkloadSpec
from tercet.sim.timeline import MS, S

PART = 32


def trace(count: int, *, every: int) -> list[Arrival]:
    return [
        Arrival(
            at=S + number * every,
            prompt_tokens=40 + number % 3,
            output_tokens=3 + number % 5,
            parts=(1, 100 + number),
        )
        for number in range(count)
    ]


def played(
    arrivals: Sequence[Arrival], num_open: int, *, looks: bool = True
) -> tuple[TraceClients, int]:
    """The clients after a run, and how many requests were open at most."""
    scenario = Scenario(
        cluster=ClusterSpec(
            hosts=2, speculation="off", blocks=40, pool_dram_mb=1.0, check_contents=looks
        ),
        workload=WorkloadSpec(prompt_max=1, output_max=1, stop_share=0.0, cancel_share=0.0),
    )
    run = Run(scenario, 1, trace=arrivals, part_tokens=PART, num_open=num_open)
    clients = run.clients
    assert isinstance(clients, TraceClients)
    most = 0

    def look(_: object, __: object, ___: list[Effect]) -> None:
        nonlocal most
        most = max(most, len(clients.requests))

    run.world.after_turn.append(look)
    run.go()
    return clients, most


def test_every_request_of_a_trace_ends_with_its_tokens() -> None:
    arrivals = trace(20, every=10 * MS)
    clients, _ = played(arrivals, num_open=0)
    expected = sum(one.prompt_tokens + one.output_tokens for one in arrivals)
    assert (len(clients.ended), clients.ended[-1].delivered) == (20, expected)
    assert len(clients.first_tokens_ns) == 20
    assert clients.ended[-1].at > arrivals[-1].at


def test_so_many_are_open_until_none_is_left_to_come() -> None:
    clients, most = played(trace(20, every=0), num_open=4)
    assert most == 4
    assert len(clients.ended) == 20


def test_fewer_requests_than_may_be_open() -> None:
    clients, most = played(trace(3, every=0), num_open=8)
    assert (most, len(clients.ended)) == (3, 3)


def test_equal_parts_are_equal_text() -> None:
    one, other = (prompt_of(arrival, PART) for arrival in trace(2, every=0))
    assert len(one) == 40
    assert one[:PART] == other[:PART]
    assert one[PART:] != other[PART:]


def test_an_engine_that_counts_is_as_fast_as_the_real_one() -> None:
    arrivals = trace(60, every=0)
    real, counted = (played(arrivals, 12, looks=looks)[0] for looks in (True, False))
    assert real.ended == counted.ended
    assert real.first_tokens_ns == counted.first_tokens_ns
