"""The request-job-task model: what is asked, in which state it is, how it can end.

Is: sampling parameters, jobs, tasks, outcomes, and the table of a job's states.
Is not: how text becomes tokens (`text`), where a task runs (`routing`), or HTTP (`api`).
May import: base.
"""
