"""One group of executors: how many are wanted, and how long to wait after failed starts."""

from dataclasses import replace

from tercet.cluster_manager.config import ClusterManagerConfig, GroupConfig
from tercet.messages.wire import Role


class Group:
    """The target of one model and role, and the story of its last starts."""

    def __init__(self, wanted: GroupConfig, config: ClusterManagerConfig) -> None:
        self.wanted = wanted
        self.not_before = 0
        """No start before this time."""
        self.num_failures = 0
        """Waves of executors in a row that ended before they were ready."""
        self._last_reason = ""
        self._last_failure = -1
        self._failures_max = config.failures_max
        self._backoff_ns_min = int(config.backoff_s_min * 1e9)
        self._backoff_ns_max = int(config.backoff_s_max * 1e9)

    @property
    def failed(self) -> str:
        """Why nothing of this group starts, once that is clear; empty otherwise."""
        if self.num_failures < self._failures_max:
            return ""
        kind = f"{self.wanted.role} executor of {self.wanted.model}"
        reason = self._last_reason
        return f"{self.num_failures} times in a row a {kind} ended before it was ready: {reason}"

    @property
    def kind(self) -> tuple[str, Role]:
        return (self.wanted.model, self.wanted.role)

    def want(self, count: int) -> None:
        """Let there be so many from now on."""
        self.wanted = replace(self.wanted, count=count)

    def start_failed(self, started: int, reason: str, now: int) -> None:
        """Count a start that ended before it was ready; those that began together count once."""
        self._last_reason = reason
        if started < self._last_failure:
            return
        self._last_failure = now
        self.num_failures += 1
        doubled: int = self._backoff_ns_min << min(self.num_failures - 1, 30)
        self.not_before = now + min(doubled, self._backoff_ns_max)

    def became_ready(self) -> None:
        """A start succeeded: the next failure is the first again."""
        self.num_failures = 0
        self.not_before = 0
