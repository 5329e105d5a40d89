"""Whether an executor makes progress, judged from samples of its progress page (I5).

Silence is measured by the looker's own attention: the time between two samples counts, but only
up to a bound, and a verdict takes several samples. A host that was suspended, or an agent that
was, finds its executors where it left them and not guilty.

    samples   s1      s2      s3 (the host slept an hour) s4      s5
    steps     7       7       7                           7       8
    silence   0       dt      2 dt                        2 dt + gap_max      0
"""

from dataclasses import dataclass

from tercet.messages.events import ProgressSeen
from tercet.node_agent.config import NodeAgentConfig


@dataclass(slots=True)
class Silence:
    """How long, and over how many samples, one sign of life stayed as it was."""

    ns: int = 0
    samples: int = 0

    def grow(self, ns: int) -> None:
        self.ns += ns
        self.samples += 1

    def end(self) -> None:
        self.ns = self.samples = 0


class ProgressWatch:
    """Judges one executor, from the moment its event loop turns."""

    def __init__(self, config: NodeAgentConfig) -> None:
        self._floor_ns = int(config.progress_floor_s * 1e9)
        self._factor = config.progress_factor
        self._gap_ns_max = int(config.sample_gap_s_max * 1e9)
        self._samples_min = config.stale_samples_min
        self._last: ProgressSeen | None = None
        self._last_at = 0
        self._work = Silence()
        self._loop = Silence()

    def see(self, sample: ProgressSeen, now: int) -> str | None:
        """Take a sample; gives the reason to kill the executor, if there is one."""
        last, gap = self._last, min(max(0, now - self._last_at), self._gap_ns_max)
        self._last, self._last_at = sample, now
        if last is None:
            return None
        if sample.loop_beat != last.loop_beat:
            self._loop.end()
        else:
            self._loop.grow(gap)
        if _busy(sample) and _work(sample) == _work(last):
            self._work.grow(gap)
        else:
            self._work.end()
        return self._verdict(sample)

    def _verdict(self, sample: ProgressSeen) -> str | None:
        predicted = sample.step_predicted_ns if sample.step_started else 0
        bound = self._floor_ns + int(self._factor * predicted)
        allowed = f"{bound / 1e9:.1f} s are allowed"
        if self._past(self._work, bound):
            silent = f"{self._work.ns / 1e9:.1f} s"
            if sample.step_started:
                told = f"its step of {predicted / 1e9:.3f} s (predicted) ran for {silent}"
            else:
                told = f"it had work and ran no step for {silent}"
            return f"no progress: {told}; {allowed}"
        if self._past(self._loop, bound):
            silent = f"{self._loop.ns / 1e9:.1f} s"
            return f"no progress: its event loop stood still for {silent}; {allowed}"
        return None

    def _past(self, silence: Silence, bound: int) -> bool:
        return silence.ns > bound and silence.samples >= self._samples_min


def _busy(sample: ProgressSeen) -> bool:
    return sample.has_work or sample.step_started != 0


def _work(sample: ProgressSeen) -> tuple[int, int, bool]:
    return sample.steps, sample.step_started, sample.has_work
