"""The native CPU device: a program lowered to operations of `native/` (C++), one call a step.

Is: lowering, packing of weights, the choice of instruction set and threads. Numbers of a row never
depend on the other rows of its step, nor on threads (I4).
Is not: kernels (`native/README.md`).
May import: base, program, devices. `_native` is built by `make setup`; where there is no compiler
it is missing, and `choose` falls back to the reference device.
"""
