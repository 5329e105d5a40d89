"""Every family and option against transformers, on tiny random models."""

import numpy as np
import pytest
from greedy_runs import greedy_together
from transformers_models import (
    CASES,
    agree_until_tie,
    ours,
    random_model,
    their_greedy,
    their_logits,
)

from tercet.devices.direct import Sequence

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]

LENGTHS = (1, 5, 17, 131, 260)
NEW_TOKENS = 16


def prompt(length: int, vocab: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(length).integers(0, vocab, length)]


@pytest.mark.parametrize("case", CASES)
def test_error_of_the_logits_is_at_most_twice_transformers_own(case: str) -> None:
    model = random_model(case)
    ids = prompt(900, model.config.vocab_size)
    direct = ours(model).direct(len(ids))
    mine = np.concatenate(
        [
            direct._executable.logits(direct.batch([(sequence, piece)], every_row=True)).copy()
            for sequence in [Sequence()]
            for piece in (ids[:500], ids[500:])
        ]
    )
    theirs = their_logits(model, ids)
    truth = their_logits(model.double(), ids)
    assert truth.dtype == np.float64
    my_error, their_error = np.abs(mine - truth).max(), np.abs(theirs - truth).max()
    print(f"{case}: error {my_error:.2e}, transformers {their_error:.2e}")
    assert my_error <= 2 * their_error


@pytest.mark.parametrize("case", CASES)
def test_greedy_tokens_equal_transformers_alone_together_and_in_chunks(case: str) -> None:
    model = random_model(case)
    prompts = [prompt(length, model.config.vocab_size) for length in LENGTHS]
    mine = ours(model)
    expected = [their_greedy(model, ids, NEW_TOKENS) for ids in prompts]
    most = max(LENGTHS) + NEW_TOKENS
    runs = {
        "alone": [greedy_together(mine.direct(most), [ids], NEW_TOKENS)[0] for ids in prompts],
        "together": greedy_together(mine.direct(most, len(prompts)), prompts, NEW_TOKENS),
        "in chunks of 7": greedy_together(
            mine.direct(most, len(prompts)), prompts, NEW_TOKENS, chunk=7
        ),
    }
    compared = [
        agree_until_tie(answer, tokens, margins)
        for answers in runs.values()
        for answer, (tokens, margins) in zip(answers, expected, strict=True)
    ]
    ties = sum(count < NEW_TOKENS for count in compared)
    print(f"{case}: {sum(compared)} tokens equal, {ties} of {len(compared)} runs met a near-tie")
    assert sum(compared) >= 0.8 * NEW_TOKENS * len(compared)
