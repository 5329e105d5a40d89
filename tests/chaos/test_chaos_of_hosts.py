"""Three hosts that share nothing but TCP, under chaos: hosts die and come back with what their
disks held, stand still and go on, and connections break in the midst of a block.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from cluster import Cluster, clustered, holdings, may_cut, unrest_of_cluster
from host_deeds import HostDeeds
from peers import long_asks, moved, with_peers
from saboteur import Saboteur
from trial import Trial, chaos_config, undisturbed

from tercet.cluster_manager.config import ClusterManagerConfig
from tercet.devices.cpu.native import native

Build = Callable[..., Trial]
SLOW_BYTES_PER_S = 3e6
"""What each host lets others read: a prompt takes long enough to be cut in its midst."""
AGENT_S = 6.0
"""A host that is away for so long has lost its executors."""


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_sixty_streams_over_three_hosts(
    cache: Path, tmp_path_factory: pytest.TempPathFactory, build: Build, rand: Random
) -> None:
    folder = tmp_path_factory.mktemp("cluster")
    config = chaos_config(cache, replicas=1, kv_bytes=3 << 20)
    config = with_peers(config, way="auto", disk=folder / "slab")
    runtime = dataclasses.replace(config.runtime, data_bytes_per_s=SLOW_BYTES_PER_S)
    manager = ClusterManagerConfig(agent_timeout_s=AGENT_S)
    config = dataclasses.replace(config, runtime=runtime, cluster_manager=manager)
    asks = long_asks(rand, 48, tokens_max=200)
    expected = undisturbed(config, asks)
    trial = build(
        clustered(config, folder, hosts=3),
        start=Cluster,
        unrest=unrest_of_cluster,
        holdings=holdings,
        prepared=True,
    )
    trial.measure(asks, expected)
    deeds = HostDeeds(trial.house).by_name(may_cut=may_cut())
    acts = {"nothing, to compare": 2, **dict.fromkeys(deeds, 2)}
    saboteur = Saboteur(trial.house, rand, pause_s=(1.5, 4.0), acts=acts, more=deeds)
    trial.run(saboteur, rand, count=60, for_s=150.0, leaving=0.1)
    whole, wrong = trial.verdicts()
    counted = moved(trial.house)
    print(f"{trial.summary(saboteur, whole)}\n{counted}")
    assert not wrong, f"{len(wrong)} of {len(whole)}: {wrong[:5]}"
    assert native() is None or not trial.strays()
    assert counted["kv_moved_bytes"]["tcp/scale_out"] > 0
    assert len(saboteur.done) >= 10
    trial.check_rest()
