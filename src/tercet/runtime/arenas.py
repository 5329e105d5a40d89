"""What the executors of a host get: arenas of a size that is decided once, threads."""

import os
from collections.abc import Iterable

from tercet.observe.log import Log
from tercet.runtime.config import RuntimeConfig
from tercet.runtime.control import Wants
from tercet.runtime.cores import threads_each, usable_cores
from tercet.runtime.memory_budget import MemoryBudget, free_memory, plan_memory
from tercet.runtime.residents import Resident


class Arenas:
    """One for an agent."""

    def __init__(self, runtime: RuntimeConfig, log: Log) -> None:
        self._runtime = runtime
        self._log = log
        self._budget: MemoryBudget | None = None

    def num_blocks(self, wants: Wants, residents: Iterable[Resident]) -> int:
        """Give the blocks of each arena; `Invalid` if there is no memory for one context."""
        if self._budget is None:
            runtime = self._runtime
            self._budget = plan_memory(
                block_bytes=wants.block_bytes,
                context_max=wants.context_max,
                replicas=runtime.num_here,
                fraction=runtime.memory_fraction,
                asked_bytes=runtime.kv_cache_memory_bytes,
                free_bytes=free_memory() + _lent_bytes(residents),
            )
            self._log.line("info", "memory.budget", said=self._budget.sentence)
        return self._budget.num_blocks


def share_cores(runtime: RuntimeConfig, log: Log) -> int:
    """Give the threads of each executor."""
    cores, executors = usable_cores(), runtime.num_here
    threads = runtime.threads or threads_each(executors, cores)
    log.line("info", "cpu.budget", usable=cores, executors=executors, threads_each=threads)
    return threads


def _lent_bytes(residents: Iterable[Resident]) -> int:
    """What a former self of the agent lent already: part of what the budget shares out."""
    arenas = [resident.parts.get("arena") for resident in residents]
    return sum(os.fstat(arena).st_blocks * 512 for arena in arenas if arena is not None)
