"""Every row of the two tables leads where it says, and what is not written cannot happen."""

from itertools import product

import pytest

from tercet.base.errors import Invalid, InvariantBroken
from tercet.transfer.config import TransferConfig
from tercet.transfer.states import (
    FETCH_STEPS,
    LEASE_STEPS,
    FetchEvent,
    FetchState,
    LeaseEvent,
    LeaseState,
    next_fetch_state,
    next_lease_state,
)


@pytest.mark.parametrize(("state", "event"), list(product(LeaseState, LeaseEvent)))
def test_leases(state: LeaseState, event: LeaseEvent) -> None:
    wanted = LEASE_STEPS.get((state, event))
    if wanted is None:
        with pytest.raises(InvariantBroken, match=f"lease 7 is {state}: it cannot {event}"):
            next_lease_state(state, event, "lease 7")
    else:
        assert next_lease_state(state, event, "lease 7") is wanted


@pytest.mark.parametrize(("state", "event"), list(product(FetchState, FetchEvent)))
def test_fetches(state: FetchState, event: FetchEvent) -> None:
    wanted = FETCH_STEPS.get((state, event))
    if wanted is None:
        with pytest.raises(InvariantBroken, match=f"fetch 7 is {state}: it cannot {event}"):
            next_fetch_state(state, event, "fetch 7")
    else:
        assert next_fetch_state(state, event, "fetch 7") is wanted


def test_every_lease_can_end_and_nothing_follows_its_end() -> None:
    for state in LeaseState:
        ends = [
            event for (s, event), to in LEASE_STEPS.items() if s is state and to.value == "over"
        ]
        assert bool(ends) == (state is not LeaseState.OVER)
    for state in (LeaseState.QUEUED, LeaseState.PARTLY, LeaseState.LENT):
        for event in (LeaseEvent.RETURN, LeaseEvent.EXPIRE, LeaseEvent.RENEWED):
            assert LEASE_STEPS[state, event] is LeaseState.OVER


def test_every_fetch_can_fail_and_end_at_any_moment() -> None:
    for state in FetchState:
        if state not in {FetchState.DONE, FetchState.LEAVING}:
            for event in (FetchEvent.FAIL, FetchEvent.END):
                assert FETCH_STEPS[state, event] in {FetchState.DONE, FetchState.LEAVING}


@pytest.mark.parametrize(
    ("field", "value"),
    [("lease_s", 0.0), ("renew_s", -1.0), ("silence_s", 0.0), ("max_fetches", 0), ("renew_s", 6.0)],
)
def test_wrong_settings_are_one_sentence(field: str, value: float) -> None:
    with pytest.raises(Invalid, match=field):
        TransferConfig(**{field: value})
