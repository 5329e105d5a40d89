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


ENDLESS = ("--raw", "--max-tokens", "200", "--set", "cost.step_ns=50000000")


def test_run_prints_while_it_computes_and_stops_when_told() -> None:
    """Steps of 50 ms: what was read came while the process had 10 s to go; Ctrl-C ends it."""
    process = subprocess.Popen(
        [TERCET, "run", "cost:tiny", "hello", *ENDLESS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell that runs the tests in the background has them ignore Ctrl-C, children included.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    assert process.stdout is not None
    assert os.read(process.stdout.fileno(), 1)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in errors


def test_run_starts_no_process_and_no_server() -> None:
    script = (
        "import sys, os, tercet.cli.main as m\n"
        f"sys.argv = ['tercet', 'run', {TINY!r}, 'hi', '--raw', '--max-tokens', '2']\n"
        "try:\n    m.main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print()\n"
        "for task in os.listdir('/proc/self/task'):\n"
        "    print('children', open(f'/proc/self/task/{task}/children').read())\n"
        "print('loaded', *sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    children = [line for line in result.stdout.splitlines() if line.startswith("children")]
    assert children
    assert all(line.split() == ["children"] for line in children)
    loaded = set(result.stdout.rpartition("loaded ")[2].split())
    assert not loaded & {"asyncio", "httpx", "starlette", "uvicorn", "uvloop", "jinja2"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--set", "api.stop_strings_max=x"), "api.stop_strings_max"),
        (("--max-tokens", "100000"), "maximum context length is 512 tokens"),
        (("--seed", str(1 << 70)), "seed"),
        (("--set", "runtime.kv_cache_memory_bytes=1"), "KV memory"),
        (("--device", "cost", "--set", "runtime.kv_dtype=int5"), "int5"),
    ],
)
def test_run_refuses_in_a_sentence(options: tuple[str, ...], words: str) -> None:
    result = tercet("run", TINY, "hello", *options)
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_run_takes_a_system_message_and_a_template(tmp_path: Path) -> None:
    template = "{{ messages | length }}{{ messages[0].content }}"
    options = ("--max-tokens", "6", "--set", f"chat_template={template}")
    alone = tercet("run", TINY, "hello", *options)
    told = tercet("run", TINY, "hello", "--system", "Be brief.", *options)
    assert alone.returncode == told.returncode == 0, told.stderr
    raw = [
        tercet("run", TINY, text, "--raw", "--max-tokens", "6") for text in ("1hello", "2Be brief.")
    ]
    assert [alone.stdout, told.stdout] == [one.stdout for one in raw]
    assert alone.stdout != told.stdout


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
