"""Many streams, and processes that die or hang under them (issue 2, point 5).

Every stream ends exactly once with the text of the undisturbed run, and afterwards the tree has
what it had before. The seed is printed; TERCET_CHAOS_SEED repeats the choices, not the timing.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from real_model import smollm2, user_cache
from saboteur import Saboteur, faults_of_replacements
from streams import varied_asks
from trial import Trial, chaos_config

from tercet.base.tokenizer import BYTES_VOCAB
from tercet.runtime.config import TreeConfig

Build = Callable[[TreeConfig], Trial]
EXECUTORS = {
    "nothing, to compare": 2,
    "kill an executor": 6,
    "stop an executor": 4,
    "kill every executor": 1,
}
EVERYTHING = EXECUTORS | {
    "kill the agent": 2,
    "kill the zygote": 1,
    "kill agent and executor": 1,
}


def tiny_asks(rand: Random, count: int, *, tokens_max: int):
    return varied_asks(rand, count, vocab=BYTES_VOCAB - 4, tokens_max=tokens_max)


def go(trial: Trial, saboteur: Saboteur, rand: Random, **crowd) -> None:
    trial.run(saboteur, rand, **crowd)
    whole, wrong = trial.verdicts()
    print(trial.summary(saboteur, whole))
    assert not wrong, f"{len(wrong)} of {len(whole)}: {wrong[:5]}"
    assert len(whole) >= crowd["count"]
    trial.check_rest()


def test_streams_go_on_while_their_executors_die_and_hang(
    cache: Path, build: Build, rand: Random
) -> None:
    """The short form."""
    faults = faults_of_replacements(replicas=2, count=5, rand=rand)
    trial = build(chaos_config(cache, replicas=2, kv_bytes=3 << 20, faults=faults))
    trial.measure(tiny_asks(rand, 12, tokens_max=150))
    each = dict.fromkeys(EVERYTHING, 1)
    saboteur = Saboteur(trial.house, rand, pause_s=(0.9, 1.9), acts=each)
    go(trial, saboteur, rand, count=32, for_s=12.0, leaving=0.1)
    assert len(saboteur.done) >= 3


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_two_hundred_streams_of_a_tiny_model(cache: Path, build: Build, rand: Random) -> None:
    faults = faults_of_replacements(replicas=3, count=25, rand=rand)
    trial = build(chaos_config(cache, replicas=3, faults=faults))
    trial.measure(tiny_asks(rand, 48, tokens_max=300))
    acts = EVERYTHING | {"stop the agent": 1, "stop the zygote": 1}
    saboteur = Saboteur(trial.house, rand, pause_s=(1.5, 4.5), acts=acts)
    go(trial, saboteur, rand, count=200, for_s=120.0, leaving=0.1)
    assert len(saboteur.done) >= 10


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_sixteen_streams_of_smollm2(build: Build, rand: Random) -> None:
    vocab = smollm2().shape.vocab
    config = chaos_config(user_cache().folder, replicas=2, model="smollm2", kv_bytes=400 << 20)
    trial = build(config)
    trial.measure(varied_asks(rand, 16, vocab=vocab, tokens_max=120))
    saboteur = Saboteur(trial.house, rand, pause_s=(28.0, 32.0), acts=EXECUTORS)
    go(trial, saboteur, rand, count=16, for_s=240.0, leaving=0.05)
    assert len(saboteur.done) >= 5


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_fronts_die_under_fifty_clients(cache: Path, build: Build, rand: Random) -> None:
    """A dead front's clients see their connection close, after a beginning of the right text."""
    trial = build(chaos_config(cache, replicas=2))
    trial.measure(tiny_asks(rand, 24, tokens_max=200))
    saboteur = Saboteur(trial.house, rand, pause_s=(5.5, 8.0), acts={"kill the front": 1})
    trial.run(saboteur, rand, count=50, for_s=60.0, leaving=0.1)
    whole, _ = trial.verdicts()
    print(trial.summary(saboteur, whole))
    assert not trial.deviations()
    assert not [outcome.error for outcome in whole if outcome.error]
    assert sum(bool(outcome.broken) for outcome in whole) > 0
    assert sum(not outcome.broken for outcome in whole) > 0
    trial.check_rest()
