"""SmolLM2 against transformers over the same dequantized weights: logits and greedy tokens."""

import numpy as np
import pytest
from greedy_runs import greedy_together
from smollm2_models import mine, prompts, theirs
from transformers_models import agree_until_tie, their_greedy, their_logits

from tercet.devices.direct import Sequence

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]

LENGTHS = [int(length) for length in np.geomspace(5, 1500, 40).round()]


def compare(lengths: list[int], new_tokens: int, together: int) -> None:
    """Tokens equal transformers' alone, in batches, and with prompts in chunks of 100."""
    ours, asked = mine(), prompts(lengths)
    expected = [their_greedy(theirs(), ids, new_tokens) for ids in asked]
    batches = [asked[at : at + together] for at in range(0, len(asked), together)]

    def run(groups: list[list[list[int]]], chunk: int) -> list[list[int]]:
        answers: list[list[int]] = []
        for group in groups:
            direct = ours.direct(max(map(len, group)) + new_tokens, len(group))
            answers += greedy_together(direct, group, new_tokens, chunk=chunk)
        return answers

    runs = {
        "alone": run([[ids] for ids in asked], 512),
        f"in batches of {together}": run(batches, 512),
        "in chunks of 100": run(batches, 100),
    }
    for name, answers in runs.items():
        compared = [
            agree_until_tie(answer, tokens, margins)
            for answer, (tokens, margins) in zip(answers, expected, strict=True)
        ]
        ties = sum(count < new_tokens for count in compared)
        print(f"{name}: {sum(compared)} tokens of {len(asked)} prompts equal, {ties} near-ties")
        assert sum(compared) >= 0.9 * new_tokens * len(asked)


def test_four_prompts_give_the_tokens_of_transformers() -> None:
    compare([5, 38, 117, 330], new_tokens=8, together=4)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_forty_prompts_give_the_tokens_of_transformers() -> None:
    compare(LENGTHS, new_tokens=64, together=32)


def test_error_of_the_logits_is_at_most_twice_transformers_own() -> None:
    (ids,) = prompts([180])
    direct = mine().direct(len(ids))
    step = direct.batch([(Sequence(), ids)], every_row=True)
    logits = direct._executable.logits(step).copy()
    model = theirs()
    single = their_logits(model, ids)
    truth = their_logits(model.double(), ids)
    model.float()
    my_error, their_error = np.abs(logits - truth).max(), np.abs(single - truth).max()
    print(f"SmolLM2: error {my_error:.2e}, transformers {their_error:.2e}")
    assert my_error <= 2 * their_error
