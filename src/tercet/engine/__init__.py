"""From a `StepPlan` to a `StepResult`: slots, batches, KV memory, the measured cost of a step.

Is: the muscle behind `RunStep`. It keeps what a device must not know (token history, stop rules,
penalties, block tables) and what a planner cannot know (values).
Is not: a scheduler (the plan says what runs), a block pool (`cache` owns block ids), a process.
May import: base, jobs, messages, program, models, devices.
"""
