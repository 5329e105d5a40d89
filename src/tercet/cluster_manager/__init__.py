"""The cluster manager: as many executors of each role as are wanted, and who they are.

Is: the machine (`machine.ClusterManager`), the table of a member's states, the patience with
executors that die before they are ready.
Is not: processes (`node_agent`, `runtime`), tasks (`job_executor`), how many there should be
(`scaling`; today the configuration says it).
May import: base, messages, scaling.
"""
