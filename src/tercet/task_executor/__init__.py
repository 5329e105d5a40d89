"""The task executor's machine: tasks come in, steps go out, tokens go back to whoever asked.

    fronts    whose tasks these are, and when their owner is gone
    results   what a step's result means for its tasks
    machine   `TaskExecutor.on(event, now) -> effects`

Is: the protocol around a scheduler: at most two plans under way, the next one made while a step
runs; updates batched by reply address; ends by cancel, change of epoch or absence.
Is not: the choice of rows (`scheduling`), the computation (`engine`), text or stop strings (the
front finds those and cancels).
May import: base, jobs, messages, cache, transfer, scheduling.
"""
