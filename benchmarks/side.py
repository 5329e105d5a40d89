"""One of two programs that are compared: a process of its own that waits while the other works.

parent --{"do": "decode", "streams": 8, ...}--> worker --{"step_s": [...]}--> parent
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

SETTLE_S = 0.3
"""Between turns: threads of the other's BLAS spin a while before they sleep."""


class Side:
    """A worker process; answers one command at a time."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ) | dict(environment),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, **command: object) -> dict[str, object]:
        """Have a command carried out; the worker's answer."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("a worker without pipes")
        time.sleep(SETTLE_S)
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended over {command}")
        answer: dict[str, object] = json.loads(line)
        return answer

    def seconds(self, **command: object) -> list[float]:
        """Have a command carried out that answers with times."""
        times = self.ask(**command)["seconds"]
        return [float(one) for one in times] if isinstance(times, list) else []
