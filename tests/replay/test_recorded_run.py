"""A real tree is recorded, through deaths of its pieces, and every recording replays."""

import json
import signal
import urllib.request
from pathlib import Path

import psutil

from tercet.runtime.config import RuntimeConfig, TreeConfig
from tercet.runtime.replay import Replayed, replay
from tercet.runtime.tree import start_tree


def ask(url: str, body: dict[str, object]) -> dict[str, object]:
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def test_a_recorded_run_replays_to_identical_effects(tmp_path: Path) -> None:
    config = TreeConfig(
        model="random:llama?seed=3",
        cache_folder=str(tmp_path / "models"),
        served_names=("tiny",),
        runtime=RuntimeConfig(
            port=0,
            replicas=2,
            threads=1,
            kv_cache_memory_bytes=16 << 20,
            record=str(tmp_path / "record"),
        ),
    )
    tree = start_tree(config, timeout_s=60)
    try:
        body = {"model": "tiny", "prompt": "Once", "max_tokens": 40, "n": 3, "seed": 5}
        first = ask(tree.url, body)
        children = psutil.Process(tree.process.pid).children(recursive=True)
        executor = next(one for one in children if "task executor 0" in one.cmdline()[0])
        executor.send_signal(signal.SIGKILL)
        second = ask(tree.url, {**body, "stop": ["a", "e"]})
        tree.terminate()
        assert tree.wait(60) == 0
    finally:
        tree.close()
    assert len(first["choices"]) == len(second["choices"]) == 3
    replayed: dict[str, Replayed] = {}
    for path in sorted((tmp_path / "record").iterdir()):
        replayed[path.name] = replay(path)
    assert {name: again.difference for name, again in replayed.items()} == dict.fromkeys(
        replayed, ""
    )
    kinds = {type(again.construction).__name__ for again in replayed.values()}
    assert {"MakeJobExecutor", "MakeClusterManager", "MakeNodeAgent"} <= kinds
    jobs = next(again for name, again in replayed.items() if name.startswith("front"))
    assert jobs.num_events > 20
