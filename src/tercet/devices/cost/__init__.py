"""A device that computes nothing: it says how long a step would take and makes tokens up.

Is: the simulator's accelerator, the planner's oracle, and what lets many real executor processes
run on two cores.
Is not: a model of quality; its tokens mean nothing.
May import: base, program, `devices.contract`, `devices.noise`.
"""
