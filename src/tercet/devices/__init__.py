"""Compile a program and run it on some hardware; the seam every engine stands on.

Is: `contract` (the seam), `reference` (NumPy, the specification), `cost` (a duration and made-up
tokens). Is not: scheduling, slots or memory ownership (`engine`).
May import: base, program. The choice of a device (`choose`) imports lazily, on purpose.
"""
