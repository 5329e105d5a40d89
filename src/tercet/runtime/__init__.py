"""The real driver: time, sockets, processes and shared memory around the four machines.

Is: the event loop's side of the machine contract, framing and connections, the process tree,
shutdown, memory budget, recording and replay.
Is not: a decision about jobs, steps, executors or memory blocks (the machines), HTTP (`api`),
or virtual time (`sim`).
May import: everything but sim, api's users (`bench`), `llm` and `cli`.

    supervisor --+-- front        HTTP, JobExecutor, ClusterManager      listens: front/0, cluster
                 +-- node agent   NodeAgent                              listens: agent/local
                 +-- zygote       forks
                 +-- executors    TaskExecutor + engine thread           dial: front/0, agent/local

`tree.start_tree` starts all of it as a child; `supervisor.supervise` becomes it.
"""
