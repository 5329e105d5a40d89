"""The node agent: starts, watches and kills the task executors of one host.

Is: the machine (`machine.NodeAgent`), the table of an executor's states, the judgement whether an
executor makes progress (I5).
Is not: how a process is made or killed (`runtime`), how many executors there shall be
(`cluster_manager`), what becomes of their jobs (`job_executor`).
May import: base, messages, pool, transfer.
"""
