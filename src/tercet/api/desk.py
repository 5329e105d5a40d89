"""What every reader of requests needs beside the request itself."""

from collections.abc import Callable
from dataclasses import dataclass

from tercet.api.config import ApiConfig
from tercet.api.tokenizing import Tokenizing
from tercet.base.ids import JobId


@dataclass(frozen=True)
class Desk:
    """Limits, threads that tokenize, and the source of job ids."""

    config: ApiConfig
    tokenizing: Tokenizing
    new_job_id: Callable[[], JobId]
