"""The threads of NumPy's products in this process."""

import time

import numpy as np
import threadpoolctl

_SIDE = 512
_TRIES = 5
_GAIN_MIN = 1.2
"""What many threads must gain over one for a start with many."""


class BlasThreads:
    """Sets how many threads products use; cheap enough for every step."""

    def __init__(self) -> None:
        found = threadpoolctl.ThreadpoolController().select(user_api="blas")
        self._libraries = found.lib_controllers
        self._set = 0

    def use(self, threads: int) -> None:
        """Products from now on use so many threads."""
        if threads != self._set:
            self._set = threads
            for library in self._libraries:
                library.set_num_threads(threads)

    def quicker(self, most: int) -> int:
        """1 or `most`: whichever is quicker right now, tried on a few products; it is in use."""
        if most > 1:
            alone, together = self._time(1), self._time(most)
            if together * _GAIN_MIN > alone:
                most = 1
        self.use(most)
        return most

    def _time(self, threads: int) -> float:
        self.use(threads)
        square = np.ones((_SIDE, _SIDE), np.float32)
        out = np.empty_like(square)
        np.matmul(square, square, out=out)  # starts the threads
        times = []
        for _ in range(_TRIES):
            started = time.perf_counter()
            np.matmul(square, square, out=out)
            times.append(time.perf_counter() - started)
        return sorted(times)[_TRIES // 2]
