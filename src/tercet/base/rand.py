"""Chance as an object that a driver hands in; equal seeds draw equal values on every machine."""

_MASK = (1 << 64) - 1


def mix(value: int) -> int:
    """Scramble 64 bits (the finalizer of SplitMix64: Steele, Lea and Flood, 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


class Rand:
    """A stream of draws keyed by (seed, name): independent of what other streams draw."""

    def __init__(self, seed: int, name: str = "") -> None:
        self._state = mix(seed & _MASK)
        for byte in name.encode():
            self._state = mix(self._state ^ byte)

    def bits(self) -> int:
        """64 bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        return mix(self._state)

    def below(self, bound: int) -> int:
        """An integer in [0, bound)."""
        return self.bits() % bound

    def unit(self) -> float:
        """A float in [0, 1)."""
        return (self.bits() >> 11) / (1 << 53)

    def chance(self, probability: float) -> bool:
        return self.unit() < probability

    def stream(self, name: str) -> "Rand":
        """A new stream that depends on this one's present state and the name alone."""
        return Rand(self._state, name)
