import pytest

from tercet.messages.plan import StepCost
from tercet.scheduling.budget import Budget

ROW = StepCost(base_ns=0.0, per_row_ns=10.0, per_logit_ns=0.0, per_pair_ns=0.0)
FREE = StepCost(base_ns=0.0, per_row_ns=0.0, per_logit_ns=0.0, per_pair_ns=0.0)


def _budget(cost=ROW, *, limit=1000, rows=4096):
    return Budget(cost, step_ns_max=limit, max_rows=rows)


def test_a_chunk_ends_with_a_block_where_it_can():
    assert _budget().chunk(computed=0, known=500) == 96
    assert _budget().chunk(computed=5, known=500) == 91
    assert _budget().chunk(computed=0, known=100) == 100, "the end of the prompt is an end too"
    assert _budget(limit=90).chunk(computed=0, known=500) == 9, "less than a block is left"


def test_a_second_chunk_is_not_a_crumb():
    budget = _budget()
    budget.take_chunk(96, computed=0, samples=False)
    assert budget.chunk(computed=0, known=500) == 0
    assert budget.chunk(computed=0, known=4) == 4, "but it may be a whole prompt"


def test_prompts_get_their_share_beside_many_decodes():
    budget = _budget()
    count = budget.num_decodes([50] * 200, keep_share=0.25)
    assert count == 75
    budget.take_decodes(count, pairs=0)
    assert budget.chunk(computed=0, known=500) == 16


@pytest.mark.parametrize("cost", [10_000.0, 990.0, 200.0])
def test_prompts_move_even_where_no_row_fits(cost):
    slow = StepCost(base_ns=0.0, per_row_ns=cost, per_logit_ns=0.0, per_pair_ns=0.0)
    budget = _budget(slow)
    count = budget.num_decodes([1] * 9, keep_share=0.25)
    budget.take_decodes(count, pairs=0)
    assert count >= 1
    assert budget.chunk(computed=0, known=500) >= 1


@pytest.mark.parametrize("base", [0.0, 300.0, 600.0, 800.0])
def test_a_step_keeps_its_limit_where_its_base_leaves_room(base):
    cost = StepCost(base_ns=base, per_row_ns=10.0, per_logit_ns=0.0, per_pair_ns=0.0)
    budget = _budget(cost)
    budget.take_decodes(budget.num_decodes([1] * 32, keep_share=0.25), pairs=0)
    budget.take_chunk(budget.chunk(computed=0, known=500), computed=0, samples=False)
    assert budget.predict_ns() <= 1000


@pytest.mark.parametrize("base", [900.0, 1000.0, 50_000.0])
def test_a_step_that_takes_long_without_rows_is_not_spent_on_one(base):
    """A model whose weights take longer to read than a step may: it would serve one row a step,
    and prompts token by token."""
    cost = StepCost(base_ns=base, per_row_ns=10.0, per_logit_ns=0.0, per_pair_ns=0.0)
    budget = _budget(cost)
    count = budget.num_decodes([1] * 32, keep_share=0.25)
    assert count == 32
    budget.take_decodes(count, pairs=0)
    assert budget.chunk(computed=0, known=500) >= 16
    assert budget.predict_ns() <= 2 * base


def test_long_contexts_shorten_a_chunk():
    pairs = StepCost(base_ns=0.0, per_row_ns=0.0, per_logit_ns=0.0, per_pair_ns=1.0)
    budget = Budget(pairs, step_ns_max=100_000, max_rows=4096)
    assert budget.chunk(computed=0, known=4000) == 432  # 432 x 433 / 2 = 93,528 pairs
    assert budget.chunk(computed=4000, known=8000) == 16


def test_a_step_that_costs_nothing_is_bounded_by_rows():
    assert _budget(FREE, rows=100).chunk(computed=0, known=5000) == 96
    assert _budget(FREE, rows=100).num_decodes([1] * 300, keep_share=0.25) == 100
