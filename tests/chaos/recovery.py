"""How long streams stood still after each act."""

from collections.abc import Sequence
from itertools import pairwise

from saboteur import Act
from streams import Outcome

UNDER_WAY_S = 0.1
"""Tokens that were computed before an act may arrive so long after it."""


def stalls(act: Act, outcomes: Sequence[Outcome]) -> list[float]:
    """Seconds from the act to the next token of each stream that it concerned, or to the first one
    if it concerned prompts.

    Which streams an executor had is nobody's business outside; how many they were is known, and
    the others go on at once: so they are the ones that waited longest.
    """
    waits = [_stall(act.at, _awaited(act, outcome)) for outcome in outcomes]
    return sorted(filter(None, waits), reverse=True)[: act.num_tasks]


def _awaited(act: Act, outcome: Outcome) -> list[float]:
    """When what the act may have delayed began to be waited for, and when it came."""
    return [outcome.began, *outcome.arrivals[:1]] if act.is_of_prompts else outcome.arrivals


def _stall(moment: float, arrivals: Sequence[float]) -> float:
    """How long after the moment the longest silence ended that began about then; 0: none did."""
    silences = [
        (later - earlier, later - moment)
        for earlier, later in pairwise(arrivals)
        if earlier < moment + UNDER_WAY_S and later > moment
    ]
    return max(silences, default=(0.0, 0.0))[1]


def table(acts: Sequence[Act], outcomes: Sequence[Outcome]) -> str:
    """Show what was done how often, the seconds to the next token of the streams concerned, and
    the longest until any stream of the house went on.
    """
    every = sorted(at for outcome in outcomes for at in outcome.arrivals)
    lines = [
        f"{'':24} {'acts':>5} {'streams':>8} {'p50 s':>7} {'p95 s':>7} {'max s':>7} {'any s':>7}"
    ]
    for kind in dict.fromkeys(act.kind for act in acts):
        done = [act for act in acts if act.kind == kind]
        waits = sorted(wait for act in done for wait in stalls(act, outcomes))
        places = (len(waits) // 2, len(waits) * 95 // 100, len(waits) - 1) if waits else ()
        shown = [f"{waits[place]:7.2f}" for place in places] or ["       "] * 3
        silence = max(_stall(act.at, every) for act in done)
        lines.append(f"{kind:24} {len(done):5} {len(waits):8} {' '.join(shown)} {silence:7.2f}")
    return "\n".join(lines)
