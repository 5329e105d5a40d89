"""What the scheduler promises of any workload: short steps, order of service, no starvation."""

from array import array

from executor_harness import Harness, task
from hypothesis import given, settings
from hypothesis import strategies as st

from tercet.messages.plan import StepCost
from tercet.scheduling.budget import Budget
from tercet.scheduling.config import SchedulingConfig

COSTS = st.builds(
    StepCost,
    base_ns=st.floats(0, 1e8),
    per_row_ns=st.floats(0, 5e7),
    per_logit_ns=st.floats(0, 5e6),
    per_pair_ns=st.floats(0, 1e5),
)
LIMIT = 500_000_000


def _cost_of_one(cost, context):
    return cost.per_row_ns + cost.per_logit_ns + cost.per_pair_ns * context


@given(
    cost=COSTS,
    contexts=st.lists(st.integers(1, 4000), max_size=40),
    prompts=st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 3000)), max_size=4),
)
@settings(max_examples=300, deadline=None)
def test_a_step_is_as_short_as_predicted(cost, contexts, prompts):
    budget = Budget(cost, step_ns_max=LIMIT, max_rows=4096)
    excess = 0.0
    if contexts:
        count = budget.num_decodes(contexts, keep_share=0.25 if prompts else 0.0)
        assert 1 <= count <= len(contexts)
        budget.take_decodes(count, pairs=sum(contexts[:count]))
        excess += _cost_of_one(cost, max(contexts))
    for computed, missing in prompts:
        known = computed + missing
        rows = budget.chunk(computed=computed, known=known)
        assert 0 <= rows <= missing
        if not rows:
            break
        budget.take_chunk(rows, computed=computed, samples=rows == missing)
    if prompts:
        assert budget.rows > bool(contexts), "prompts starve"
        excess += _cost_of_one(cost, prompts[0][0] + 1)
    # Only one row of each kind may be in a step that it does not fit: nothing is smaller.
    assert budget.predict_ns() <= LIMIT + excess + 1


@given(cost=COSTS, computed=st.integers(0, 5000), missing=st.integers(1, 4000))
@settings(max_examples=300, deadline=None)
def test_a_chunk_is_as_long_as_fits(cost, computed, missing):
    budget = Budget(cost, step_ns_max=LIMIT, max_rows=4096)
    known = computed + missing
    rows = budget.chunk(computed=computed, known=known)
    if rows == missing or rows < 16:
        return
    more = rows + 16
    longer = Budget(cost, step_ns_max=LIMIT, max_rows=4096)
    longer.take_chunk(more, computed=computed, samples=more == missing)
    assert longer.predict_ns() + cost.per_logit_ns + 1 > LIMIT, "another block would have fitted"


@given(
    num_blocks=st.integers(6, 16),
    slots=st.integers(1, 5),
    passes=st.integers(0, 3),
    sizes=st.lists(
        st.tuples(st.integers(1, 90), st.integers(1, 40), st.integers(0, 3)), max_size=25
    ),
)
@settings(max_examples=80, deadline=None)
def test_nobody_is_passed_over_for_long(num_blocks, slots, passes, sizes):
    """However the load looks, at most `max_passes` later tasks begin before an earlier one."""
    harness = Harness(
        num_blocks=num_blocks,
        context_max=96,
        scheduling=SchedulingConfig(max_slots=slots, max_passes=passes, lookahead=8),
    )
    for number, (prompt, new, steps) in enumerate(sizes, start=1):
        # Distinct first tokens: no hits, so that room is what decides.
        harness.submit(task(number, [number, *range(prompt)], new=min(new, 95 - prompt)))
        for _ in range(steps):
            if harness.plans:
                harness.step()
    harness.drain()
    place = {number: at for at, number in enumerate(harness.started)}
    assert len(place) == len(sizes) == len(harness.ends), "everybody is served"
    for number, begun in place.items():
        before = sum(at < begun for later, at in place.items() if later > number)
        assert before <= passes, f"task {number} was passed over {before} times"


@given(
    prompts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=40), min_size=1, max_size=8),
    split=st.sampled_from([16, 33, 4096]),
    num_blocks=st.sampled_from([7, 64]),
    drafts=st.sampled_from([0, 1, 5, 40]),
)
@settings(max_examples=60, deadline=None)
def test_tokens_do_not_depend_on_company(prompts, split, num_blocks, drafts):
    """Chunked or whole, cached or cold, preempted or not, guessed or not: the fake engine's tokens
    depend on the text before them alone, so any mix-up of rows, blocks or hits shows.
    """
    harness = Harness(
        num_blocks=num_blocks,
        context_max=100,
        end_id=7,
        cost=StepCost(
            base_ns=2e6, per_row_ns=1e5 if drafts else 1e9, per_logit_ns=0, per_pair_ns=0
        ),
        scheduling=SchedulingConfig(
            max_slots=16,
            max_rows=split,
            step_ns_max=10**11,
            speculation="auto" if drafts else "off",
            draft_max=max(drafts, 1),
        ),
    )
    for number, prompt in enumerate(prompts, start=1):
        harness.submit(task(number, prompt, new=40))
    harness.drain()
    for number in harness.tasks:
        harness.verify(number)
    assert harness.engine.max_rows_seen <= split


def test_rows_are_counted_as_the_cost_says():
    cost = StepCost(base_ns=7.0, per_row_ns=11.0, per_logit_ns=13.0, per_pair_ns=17.0)
    budget = Budget(cost, step_ns_max=10**9, max_rows=99)
    budget.take_decodes(2, pairs=30)
    budget.take_chunk(3, computed=5, samples=True)
    pairs = 30 + (6 + 7 + 8)
    assert budget.predict_ns() == 7 + 5 * 11 + 3 * 13 + pairs * 17
    assert array("i", [budget.rows, budget.logits, budget.pairs]) == array("i", [5, 3, pairs])
