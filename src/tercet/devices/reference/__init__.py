"""The reference device: NumPy, float32; the specification of every later device.

Is: each operation of a program as a few array operations, and the sampler (`sampling`).
Is not: tuned beyond what NumPy gives for free, or a place where tasks or slots are known.
May import: base, program, `devices.contract`.
"""

from tercet.devices.reference.device import ReferenceDevice, ReferenceExecutable

__all__ = ["ReferenceDevice", "ReferenceExecutable"]
