"""Chance without state: 32 random bits for every (seed, choice, position, token id).

    seed, choice, position --mix64--> key: low half | high half       one for each row
    token id x odd + low --mix32--> ^ high --mix32--> 32 bits         one for each id

Equal inputs give equal bits on every machine, in any company. `mix64` is the finalizer of
SplitMix64 (Steele, Lea and Flood, 2014; `base.rand.mix`), `mix32` the one of MurmurHash3
(Appleby, 2011). Adding Gumbel noise to log-probabilities and taking the largest is an exact
sample (Gumbel, 1954; "Gumbel-max trick").
"""

import numpy as np
from numpy.typing import NDArray

from tercet.devices.contract import F64, I32, U64

U32 = NDArray[np.uint32]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_TWO_32 = float(1 << 32)


def mix64(values: U64) -> U64:
    """Scramble each of the values; the same function as `base.rand.mix`."""
    mixed = values + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def row_keys(seed: U64, choice: I32, position: I32) -> U64:
    """[R] the key of each row's noise."""
    keyed = mix64(seed)
    keyed = mix64(keyed ^ choice.astype(np.uint64))
    return mix64(keyed ^ position.astype(np.uint64))


def noise_bits(keys: U64, ids: U32) -> U32:
    """The bits of each (key, id); the two arrays broadcast against each other."""
    low = (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    high = (keys >> np.uint64(32)).astype(np.uint32)
    mixed = _mix32(ids * np.uint32(0x9E3779B1) + low)
    mixed ^= high
    return _mix32(mixed)


def gumbel(bits: U32) -> F64:
    """Standard Gumbel noise; finite for all bits (between about -3.1 and 22.9)."""
    uniform: F64 = (bits.astype(np.float64) + 0.5) / _TWO_32
    noise: F64 = -np.log(-np.log(uniform))
    return noise


def bits_reaching(noise: F64) -> U32:
    """The least bits whose `gumbel` can be `noise` or more; one below the exact bound, so that
    rounding never excludes a value that reaches it.
    """
    with np.errstate(over="ignore"):
        uniform = np.exp(-np.exp(-noise))
    least = np.floor(uniform * _TWO_32 - 0.5) - 1.0
    reachable: U32 = np.clip(least, 0.0, _TWO_32 - 1.0).astype(np.uint32)
    return reachable


def _mix32(values: U32) -> U32:
    """Scramble in place and return the array; a bijection of 32 bits."""
    values ^= values >> np.uint32(16)
    values *= np.uint32(0x85EBCA6B)
    values ^= values >> np.uint32(13)
    values *= np.uint32(0xC2B2AE35)
    values ^= values >> np.uint32(16)
    return values
