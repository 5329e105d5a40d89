"""The command line as a person meets it: real processes, and what is printed works when pasted."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

TERCET = str(Path(sys.executable).parent / "tercet")
TINY = "random:llama?layers=2&hidden=64&context=512"


def tercet(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [TERCET, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_help_lists_the_commands() -> None:
    result = tercet("--help")
    assert result.returncode == 0
    for name in ("serve", "run", "chat", "bench", "models", "config", "replay", "sim"):
        assert f"\n  {name} " in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sevre",), "Did you mean 'serve'"),
        (("serve", "/nowhere/model.gguf"), "/nowhere/model.gguf"),
        (("serve", TINY, "--device", "cuda"), "cuda"),
        (("serve", TINY, "--host", "0.0.0.0"), "--insecure"),
        (("serve", TINY, "--set", "runtime.prot=1"), "runtime.port"),
        (("serve", TINY, "--kv-cache-memory-bytes", "1"), "KV"),
        (("run", TINY, ""), "empty"),
        (("run", "random:gpt9", "hi"), "gpt9"),
        (("sim", "nothing"), "no scenario"),
    ],
)
def test_a_mistake_is_one_sentence_and_no_traceback(arguments: tuple[str, ...], words: str) -> None:
    result = tercet(*arguments)
    assert result.returncode in {1, 2}
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_run_answers_and_leaves_nothing_behind() -> None:
    first = tercet("run", TINY, "hello", "--max-tokens", "8", "--raw", "--seed", "1")
    again = tercet("run", TINY, "--max-tokens", "8", "--raw", stdin="hello")
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout != ""


def test_chat_remembers_and_forgets() -> None:
    result = tercet("chat", TINY, "--max-tokens", "4", stdin="one\n/new\ntwo\n\n")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("> ") >= 3


def test_a_taken_port_is_said_in_a_sentence() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = tercet("serve", TINY, "--port", str(taken.getsockname()[1]))
    assert result.returncode == 1
    assert "Cannot listen" in result.stderr
    assert "Traceback" not in result.stderr


def test_serve_prints_lines_that_work_when_pasted() -> None:
    process = subprocess.Popen(
        [TERCET, "serve", TINY, "--port", "0", "--served-model-name", "tiny", "--api-key", "k1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
    )
    try:
        assert process.stdout is not None
        printed = []
        for line in process.stdout:
            printed.append(line.rstrip("\n"))
            if line.startswith("print("):
                break
        url = re.search(r"http://127\.0\.0\.1:\d+", "\n".join(printed))
        assert url is not None
        assert httpx.get(f"{url[0]}/ready", trust_env=False).status_code == 200
        curl = next(line for line in printed if line.startswith("curl "))
        answer = subprocess.run(
            ["/bin/sh", "-c", f"{curl} -s"],
            capture_output=True,
            text=True,
            env={**os.environ, "TERCET_API_KEY": "k1"},
            check=True,
        )
        assert "k1" not in "".join(printed)
        assert '"chat.completion"' in answer.stdout
        pasted = "\n".join(printed[printed.index(curl) + 2 :])
        assert len(pasted.splitlines()) == 3
        program = subprocess.run(
            [sys.executable, "-c", pasted],
            capture_output=True,
            text=True,
            env={**os.environ, "TERCET_API_KEY": "k1"},
            check=False,
        )
        assert program.returncode == 0, program.stderr
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0
