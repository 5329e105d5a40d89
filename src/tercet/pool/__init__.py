"""The pool: memory and disks of all hosts as one store of values, and of model images in blocks.

Is: decisions over opaque keys: where a value's home is, where it lies, what goes when there is no
room, which blocks of an image come from whom.
Is not: messages and leases of executors (`node_agent`), bytes (`wires`), or what a key means
(`cache`).
May import: base.
"""
