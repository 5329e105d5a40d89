"""HTTP: OpenAI's shapes and a few more routes, in front of a `Service`.

Is: reading and refusing requests, templates and tokens, streams of text, errors, keys.
Is not: where or how a job runs (`job_executor`, `task_executor`); processes (`runtime`).
May import: base, jobs, messages, text, observe.
"""
