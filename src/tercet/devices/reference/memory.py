"""Named pieces of memory that only grow; whoever holds views asks whether they still hold."""

import numpy as np

from tercet.devices.contract import F32

_ALIGNMENT_BYTES = 64


class Memory:
    """Called with a name and a count, gives that many float32 numbers, contents undefined.

    Two calls with one name give the same memory; a larger count moves it, which adds one to
    `moves`.
    """

    def __init__(self) -> None:
        self.moves = 0
        self._pieces: dict[str, F32] = {}

    def __call__(self, name: str, count: int) -> F32:
        piece = self._pieces.get(name)
        if piece is None or len(piece) < count:
            self.moves += 1
            piece = _aligned(count + count // 4 if piece is not None else count)
            self._pieces[name] = piece
        return piece[:count]


def _aligned(count: int) -> F32:
    raw = np.empty(count * 4 + _ALIGNMENT_BYTES, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT_BYTES
    return raw[start : start + count * 4].view(np.float32)
