"""Muscle that moves bytes between memories, with fences and checksums: each wire names its plane.

Is: the contract of a wire, mapped memories by name, sums, wires over memory of this host, over TCP
and to a disk. Is not: a decision about what moves where (`transfer`, `pool`), or who is asked for
it (`messages`). May import `base`, `messages`, and `devices` for its compiled module.
"""
