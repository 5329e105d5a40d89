"""Flags, environment, files and vLLM's spellings end up in one configuration with origins."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tercet.base.errors import Invalid
from tercet.cli.compose import compose, local_options, local_settings, serving_options
from tercet.cli.settings import Resolved
from tercet.runtime.config import TreeConfig


def composed(
    *arguments: str, environment: dict[str, str] | None = None, model: str | None = "smollm2"
) -> Resolved[TreeConfig]:
    found: list[Resolved[TreeConfig]] = []

    @click.command()
    @serving_options
    @click.pass_context
    def probe(context: click.Context, /, **_: object) -> None:
        found.append(compose(context, model))

    result = CliRunner().invoke(probe, arguments, env=environment, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found[0]


@pytest.fixture(autouse=True)
def _no_configuration_of_mine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nothing"))
    monkeypatch.delenv("TERCET_API_KEY", raising=False)


def test_defaults_serve_on_loopback() -> None:
    value = composed().value
    assert value.model == "smollm2"
    assert (value.runtime.host, value.runtime.port) == ("127.0.0.1", 8000)


def test_a_file_may_name_the_model(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('model = "other"\n')
    assert composed("--config", str(path), model=None).value.model == "other"
    assert composed("--config", str(path), model="argued").value.model == "argued"
    assert composed(model=None).value.model == "smollm2"


def test_flag_beats_environment_beats_file(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("[runtime]\nport = 1\nreplicas = 2\n[observe]\nlog_format = 'json'\n")
    environment = {"TERCET_PORT": "3", "TERCET_REPLICAS": "4"}
    resolved = composed("--config", str(path), "--port", "5", environment=environment)
    assert resolved.value.runtime.port == 5
    assert resolved.value.runtime.replicas == 4
    assert resolved.value.observe.log_format == "json"
    assert resolved.origins["runtime.port"] == "flag"
    assert resolved.origins["runtime.replicas"] == "environment"
    assert resolved.origins["observe.log_format"].startswith("file ")
    assert resolved.origins["model"] == "argument"


def test_set_beats_everything_and_reaches_any_key() -> None:
    value = composed("--port", "5", "--set", "runtime.port=6", "--set", "api.choices_max=3").value
    assert value.runtime.port == 6
    assert value.api.choices_max == 3


def test_keys_come_from_flags_and_from_the_environment() -> None:
    assert composed("--api-key", "a", "--api-key", "b").value.api.api_keys == ("a", "b")
    assert composed(environment={"TERCET_API_KEY": "c"}).value.api.api_keys == ("c",)


@pytest.mark.parametrize(
    ("arguments", "key", "expected"),
    [
        (("--max-model-len", "512"), "context_max", 512),
        (("--max-num-seqs", "9"), "max_slots", 9),
        (("--max-num-batched-tokens", "2048"), "max_rows", 2048),
        (("--max-num-queued-reqs", "7"), "max_queued_jobs", 7),
        (("--gpu-memory-utilization", "0.25"), "memory_fraction", 0.25),
        (("--data-parallel-size", "2"), "replicas", 2),
        (("--kv-cache-dtype", "int8"), "kv_dtype", "int8"),
    ],
)
def test_spellings_of_vllm_mean_our_keys(
    arguments: tuple[str, ...], key: str, expected: object
) -> None:
    value = composed(*arguments).value
    parts = (value, value.scheduling, value.job_executor, value.runtime)
    assert [getattr(part, key) for part in parts if hasattr(part, key)] == [expected]


def test_what_is_fixed_is_accepted_with_the_value_that_it_has() -> None:
    composed("--dtype", "float32", "--block-size", "16", "--tensor-parallel-size", "1")
    composed("--enable-prefix-caching", "--enable-chunked-prefill")


@pytest.mark.parametrize("arguments", [("--dtype", "bfloat16"), ("--block-size", "32")])
def test_what_is_fixed_is_refused_with_another_value(arguments: tuple[str, ...]) -> None:
    @click.command()
    @serving_options
    def probe(**_: object) -> None: ...

    result = CliRunner().invoke(probe, arguments)
    assert result.exit_code == 2
    assert "is not" in result.output


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_an_open_address_needs_a_key_or_insecure(host: str) -> None:
    with pytest.raises(Invalid, match="--api-key"):
        composed("--host", host)
    assert composed("--host", host, "--insecure").value.runtime.host == host
    assert composed("--host", host, "--api-key", "k").value.runtime.host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_loopback_address_needs_none(host: str) -> None:
    assert composed("--host", host).value.runtime.host == host


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--port", "many"), "not an integer"),
        (("--port", "70000"), "70000"),
        (("--log-format", "xml"), "xml"),
        (("--set", "runtime.prt=1"), "did you mean 'runtime.port'"),
        (("--config", "/nowhere/x.toml"), "cannot read"),
        (("--chat-template", "/nowhere/x.jinja"), "cannot read"),
    ],
)
def test_a_bad_value_is_one_sentence(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(Invalid) as caught:
        composed(*arguments)
    assert words in caught.value.sentence


def test_how_weights_and_keys_are_kept() -> None:
    plain = composed().value.runtime
    assert (plain.quantization, plain.kv_dtype) == ("auto", "auto")
    given = composed("--quantization", "int4", "--kv-dtype", "bf16").value.runtime
    assert (given.quantization, given.kv_dtype) == ("int4", "bf16")
    assert composed(environment={"TERCET_KV_DTYPE": "float32"}).value.runtime.kv_dtype == "float32"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--quantization", "int3"), "runtime.quantization = 'int3' .flag. is not one of 'auto'"),
        (("--kv-dtype", "fp8"), "runtime.kv_dtype = 'fp8' .flag. is not one of 'auto', 'bf16'"),
        (("--set", "images_bytes_max=-1"), "images_bytes_max is -1; expected 0 or more"),
    ],
)
def test_what_cannot_be_kept_so_is_said(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        composed(*arguments)


def test_a_private_model_has_the_options_of_its_device() -> None:
    found: list[dict[str, object]] = []

    @click.command()
    @local_options
    def probe(**options: object) -> None:
        found.append(local_settings(options))

    arguments = ["--quantization", "int8", "--threads", "2", "--set", "runtime.threads=1"]
    assert CliRunner().invoke(probe, arguments, catch_exceptions=False).exit_code == 0
    assert found == [{"runtime.quantization": "int8", "runtime.threads": 1}]
    assert CliRunner().invoke(probe, [], catch_exceptions=False).exit_code == 0
    assert found[1] == {}
