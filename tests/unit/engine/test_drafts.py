"""What prompt lookup guesses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercet.engine.drafts import AGREE_MAX, AGREE_MIN, lookup


def guess(tokens, count):
    return lookup(np.array(tokens, np.int32), count).tolist()


@pytest.mark.parametrize(
    ("tokens", "count", "wanted"),
    [
        ([], 4, []),
        ([1], 4, []),
        ([1, 2, 1], 4, []),  # one token that agrees is not enough
        ([1, 2, 3, 4, 1, 2], 4, [3, 4]),  # no more than agree
        ([1, 2, 3, 4, 1, 2], 1, [3]),
        ([1, 2, 3, 4, 1, 2], 0, []),
        ([1, 2, 7, 1, 2, 8, 1, 2], 4, [8, 1]),  # the latest of equals
        ([9, 1, 2, 7, 0, 1, 2, 8, 9, 1, 2], 4, [7, 0, 1]),  # the longest before the latest
        ([5, 5, 5, 5], 4, [5]),  # what follows may be the end itself
        ([3, 4, 5, 6, 7, 8], 4, []),
    ],
)
def test_it_guesses_what_followed(tokens, count, wanted):
    assert guess(tokens, count) == wanted


@given(
    tokens=st.lists(st.integers(0, 3), max_size=60),
    count=st.integers(0, 20),
)
@settings(max_examples=300, deadline=None)
def test_a_guess_is_a_piece_of_the_text_behind_the_same_words(tokens, count):
    guessed = guess(tokens, count)
    assert len(guessed) <= count
    if not guessed:
        tail = tokens[-AGREE_MIN:]
        before = [tokens[at : at + AGREE_MIN] for at in range(len(tokens) - AGREE_MIN)]
        assert count == 0 or len(tokens) <= AGREE_MIN or tail not in before
        return
    agreeing = [
        end
        for end in range(len(tokens) - 1)
        if tokens[end + 1 : end + 1 + len(guessed)] == guessed
        and tokens[max(0, end + 1 - len(guessed)) : end + 1]
        == tokens[len(tokens) - min(len(guessed), end + 1) :]
    ]
    assert agreeing, "no more is guessed than agrees"
    assert len(guessed) <= AGREE_MAX


def test_a_long_context_costs_a_few_passes():
    """The work is a fixed number of array operations: what it gives is a view, not a copy."""
    tokens = np.arange(100_000, dtype=np.int32)
    tokens[-4:] = tokens[500:504]
    guessed = lookup(tokens, 8)
    assert guessed.tolist() == [504, 505, 506, 507]
    assert guessed.base is not None
