"""Across task executors: which of them takes a task.

Is: one read-only view of what the executors have, and policies, each one small function of it.
Is not: who is alive, what is queued, or what was promised to whom (`job_executor`).
May import: base, jobs, cache.
"""
