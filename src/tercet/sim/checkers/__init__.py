"""Checkers of the invariants, from outside: they see events, effects and streams, not insides.

Is: I1 (ends), I2 (blocks), I5 (progress), I6 (bounds) and the order of tokens, checked after every
event in work proportional to what changed. Is not: the machines' own `check()`, which the run
calls as well, for whole sums, every so many events.
May import: what `sim` may.
"""
