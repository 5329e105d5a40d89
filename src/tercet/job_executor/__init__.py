"""The job executor: a request becomes a job, its tasks find executors, its stream ends once.

Is: the machine (`machine.JobExecutor`), the records of jobs and tasks, the queue of tasks that
wait, what is known of the executors, and who is to blame when one of them dies.
Is not: HTTP and text (`api`, `text`), what an executor does with a task (`task_executor`), how
many executors there are (`cluster_manager`).
May import: base, jobs, messages, routing.
"""
