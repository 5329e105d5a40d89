"""Frequencies of rotary positions, rounded as the models' own code rounds them."""

import numpy as np

from tercet.devices.contract import F32
from tercet.program.operations import Angles


def rotary_frequencies(angles: Angles) -> F32:
    """[head_dim / 2] in float32, rounded where the models' own code rounds them."""
    exponents = np.arange(0, angles.head_dim, 2, dtype=np.float32) / np.float32(angles.head_dim)
    powers = (angles.theta ** exponents.astype(np.float64)).astype(np.float32)
    frequencies: F32 = np.float32(1.0) / powers
    if angles.divisors:
        np.divide(frequencies, np.array(angles.divisors, np.float32), out=frequencies)
    return frequencies
