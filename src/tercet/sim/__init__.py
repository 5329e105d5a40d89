"""The virtual driver: the machines that serve, in virtual time, under faults, with checkers.

Is: a timeline, a network, hosts for the machines, an engine on the `cost` device, clients, faults
from `scenarios/*.toml`, and checkers of the invariants after every event.
Is not: a second scheduler: it imports the machines and never copies one.
May import: the pure packages, program, models, devices, engine, observe.
"""
