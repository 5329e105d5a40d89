"""Many streams over prefill, decode and a pool on disk, and everything of it dies, hangs or breaks.

Every stream ends exactly once with the tokens of one undisturbed colocated executor, and afterwards
no block is held, lent or on its way.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from peers import (
    DEEDS,
    READ_ONLY,
    deeds_to_disk,
    long_asks,
    may_refuse_writes,
    moved,
    settle,
    unrest_of_peers,
    with_peers,
)
from saboteur import Saboteur, faults_of_replacements
from trial import Trial, chaos_config, undisturbed

from tercet.devices.cpu.native import native
from tercet.transfer.config import WayChoice

ACTS = {
    "nothing, to compare": 2,
    "no prompt, to compare": 2,
    "kill a prefill": 3,
    "stop a prefill": 2,
    "kill a decode": 3,
    "stop a decode": 2,
    "kill the agent": 1,
    "kill every executor": 1,
    "change the roles": 3,
    "corrupt the pool's disk": 2,
    "fill the pool's disk": 1,
    READ_ONLY: 1,
}
AGENT_ACTS = {
    "stop the agent": 1,
    "kill the zygote": 1,
    "stop the zygote": 1,
    "kill agent and executor": 1,
}
"""Whatever dies within 15 s after an agent froze is replaced after them."""
Build = Callable[..., Trial]


@pytest.fixture
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Beside what the tree may not leave behind."""
    return tmp_path_factory.mktemp("disk") / "slab"


def permitted(acts: dict[str, int], disk: Path) -> dict[str, int]:
    """Only some filesystems can be made to refuse writes, and only by some users."""
    if may_refuse_writes(disk.parent):
        return acts
    return {name: count for name, count in acts.items() if name != READ_ONLY}


def go(trial: Trial, saboteur: Saboteur, rand: Random, *, way: WayChoice, **crowd) -> None:
    trial.run(saboteur, rand, **crowd)
    whole, wrong = trial.verdicts()
    counted = moved(trial.house)
    print(f"{trial.summary(saboteur, whole)}\n{counted}")
    assert not wrong, f"{len(wrong)} of {len(whole)}: {wrong[:5]}"
    assert native() is None or not trial.strays()
    assert len(whole) >= crowd["count"]
    assert counted["kv_handovers"][way] > crowd["count"]
    assert sum(counted["pool_hits"].values()) > 0
    settle(trial.house)
    trial.check_rest()


def test_streams_go_on_while_prefills_decodes_and_the_pool_break(
    cache: Path, disk: Path, build: Build, rand: Random
) -> None:
    """The short form."""
    config = with_peers(chaos_config(cache, replicas=1, kv_bytes=1 << 20), way="auto", disk=disk)
    asks = long_asks(rand, 12, tokens_max=100)
    expected = undisturbed(config, asks)
    trial = build(config, unrest=unrest_of_peers, prepared=True)
    trial.measure(asks, expected)
    more = {**DEEDS, **deeds_to_disk(disk)}
    acts = permitted(dict.fromkeys(ACTS, 1), disk)
    saboteur = Saboteur(trial.house, rand, pause_s=(0.7, 1.4), acts=acts, more=more)
    go(trial, saboteur, rand, way="reference", count=24, for_s=9.0, leaving=0.1)
    assert len(saboteur.done) >= 3


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("way", "count", "acts"),
    [
        ("reference", 32, ACTS),
        ("layer", 32, ACTS),
        ("request", 32, ACTS),
        ("auto", 100, ACTS | AGENT_ACTS),
    ],
)
def test_streams_over_roles_and_a_pool(
    cache: Path,
    disk: Path,
    build: Build,
    rand: Random,
    way: WayChoice,
    count: int,
    acts: dict[str, int],
) -> None:
    """The few streams never queue for long: their waits are those of the acts."""
    faults = faults_of_replacements(replicas=4, count=15, rand=rand)
    config = chaos_config(cache, replicas=1, kv_bytes=3 << 19, faults=faults)
    config = with_peers(config, way=way, disk=disk)
    asks = long_asks(rand, 48, tokens_max=200)
    expected = undisturbed(config, asks)
    trial = build(config, unrest=unrest_of_peers, prepared=True)
    trial.measure(asks, expected)
    more = {**DEEDS, **deeds_to_disk(disk)}
    saboteur = Saboteur(
        trial.house, rand, pause_s=(1.5, 4.5), acts=permitted(acts, disk), more=more
    )
    on_one_host = "reference" if way == "auto" else way
    go(trial, saboteur, rand, way=on_one_host, count=count, for_s=100.0, leaving=0.15)
    assert moved(trial.house)["pool_hits"]["ssd"] > 0
    assert len(saboteur.done) >= 10
