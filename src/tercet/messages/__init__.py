"""Frozen records that processes and devices exchange; the closed unions of events and effects.

Is: data, with no behaviour (V12: the machine has the `match`).
Is not: framing, sockets or retries (`runtime`, `wires`).
May import: base, jobs.

Every record has a tag, so one decoder per union reads any of them; every event and effect can
carry `cause`, the id of what brought it about (a job, a task, a step, an executor).
"""
