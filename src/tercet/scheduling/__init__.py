"""Which tokens of which tasks an executor computes in its next step.

One idea for all phases: a task has known and computed tokens, and a step computes some of the known
ones that are not yet computed. Prefill, a chunk of it, decode, going on after preemption or after
another executor died are the same act.

    queue       who waits, in which order, and who waits for a sibling
    admission   whether a waiting task finds room now, and how often it may be passed over
    budget      how many rows a step may hold
    preemption  who gives blocks back when somebody must grow
    batch       the plan as flat arrays
    speculation whose next tokens are guessed, and how many
    acceptance  how often guesses of a task were right
    scheduler   the one that asks them all

Is: decisions over counts, blocks and slots.
Is not: messages, peers and time (`task_executor`), token values or sampling (`engine`).
May import: base, jobs, messages, cache.
"""
