"""A zygote that does not fork is replaced, and one that only needs longer gets longer."""

from tercet.runtime.patience import BIRTH_S, BIRTH_S_MAX, ZygotePatience


def test_a_busy_host_gets_twice_the_time_after_each_that_was_too_slow() -> None:
    """Under many loads a zygote takes more than its first patience to import everything: killed
    then, none ever came up.
    """
    patience = ZygotePatience()
    allowed = []
    for number in range(6):
        allowed.append(patience.seconds)
        assert patience.over(number, number)
    assert allowed[:3] == [BIRTH_S, 2 * BIRTH_S, 4 * BIRTH_S]
    assert max(allowed) == BIRTH_S_MAX
    patience.born()
    assert patience.seconds == BIRTH_S


def test_many_who_wait_for_one_zygote_replace_it_once() -> None:
    patience, first, second = ZygotePatience(), object(), object()
    assert patience.over(first, first)
    assert not patience.over(first, first)
    assert patience.seconds == 2 * BIRTH_S
    assert not patience.over(first, second), "the next one was not asked"
    assert patience.over(second, second)
