"""`tercet quantize MODEL -o DIR`: calibrate a model and write it in INT8."""

import json
import shutil
from pathlib import Path

import click

from tercet.base.errors import Invalid
from tercet.cli.compose import cache_folder
from tercet.cli.progress import Bars
from tercet.devices.choose import choose_device
from tercet.models import ModelCacheConfig, has_weights, open_model
from tercet.models.checkpoints.contract import Checkpoint
from tercet.models.checkpoints.huggingface import CONFIG, GENERATION, read_object
from tercet.models.sources import locate, open_checkpoint
from tercet.quantization.calibrate import Calibrated, calibrate, cut
from tercet.quantization.config import CalibrationConfig
from tercet.quantization.generation import generate
from tercet.quantization.report import as_json, readme, table
from tercet.quantization.tensors import read_all
from tercet.quantization.writer import (
    check_folder,
    config_of,
    write_config,
    write_generation,
    write_weights,
)
from tercet.text.codec import Codec
from tercet.text.folder_writer import write_folder
from tercet.text.load import load_codec

REPORT = "quantization.json"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    GENERATION,
)
"""What is copied from a folder in Hugging Face layout, where it is there."""
_TEXT_BYTES_MAX = 64 << 20


@click.command()
@click.argument("model")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="A new folder."
)
@click.option(
    "--calibration",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A text like those that the model will meet; without one the model writes it.",
)
@click.option("--scheme", type=click.Choice(["int8"]), default="int8", show_default=True)
@click.option(
    "--tokens",
    default=CalibrationConfig.tokens,
    show_default=True,
    type=click.IntRange(64),
    help="Tokens to calibrate on.",
)
@click.option("--cache", type=click.Path(path_type=Path), help="The model cache.")
def command(
    model: str,
    output: Path,
    *,
    calibration: Path | None,
    scheme: str,
    tokens: int,
    cache: Path | None,
) -> None:
    """Write MODEL in INT8 (W8A8) to a folder that Tercet and vLLM serve.

    Minutes for a small model; all of its weights are held in memory in float32.
    """
    del scheme  # there is one
    check_folder(output)
    if not has_weights(model):
        raise Invalid(f"{model!r} has no weights to quantize.", parameter="model")
    folder = ModelCacheConfig(folder=cache or cache_folder())
    bars = Bars()
    try:
        located = locate(model, folder, lambda done, total: bars("fetch", done, total))
        checkpoint = open_checkpoint(located.location)
        _check(checkpoint, located.location)
        config = CalibrationConfig(tokens=tokens, held_out=max(64, tokens // 4))
        codec = load_codec(checkpoint.facts().tokenizer)
        if calibration is not None:
            ids = _read(calibration, codec, config)
        else:
            ids = _written(located.location, folder, config, bars)
        calibrated = _calibrate(checkpoint, ids, config, bars)
    finally:
        bars.close()
    about = str(calibration.name) if calibration is not None else "text that the model wrote"
    report = as_json(calibrated, config, model=located.name, text=about)
    _write(output, checkpoint, calibrated, codec)
    (output / REPORT).write_text(json.dumps(report, indent=2) + "\n")
    (output / "README.md").write_text(readme(report, calibrated))
    click.echo(table(calibrated))
    click.echo(f"\n{output} is ready: tercet serve {output}")


def _check(checkpoint: Checkpoint, location: str) -> None:
    """Refuse early what could not be written in the end."""
    if checkpoint.facts().kind != "huggingface":
        config_of(checkpoint.facts().shape)
    types = {checkpoint.describe(name).dtype for name in checkpoint.tensor_names()}
    if "I8" in types:
        raise Invalid(f"{location} is in INT8 already.", parameter="model")


def _read(path: Path, codec: Codec, config: CalibrationConfig) -> list[int]:
    """The text's tokens, as many as wanted."""
    with path.open("rb") as file:
        raw = file.read(_TEXT_BYTES_MAX)
    ids = codec.encode(raw.decode("utf-8", "replace"), special=False)
    least = config.tokens + config.held_out
    if len(ids) < least:
        raise Invalid(
            f"{path} has {len(ids)} tokens, {least} are needed: {config.tokens} to calibrate on "
            f"and {config.held_out} to measure with (--tokens asks for fewer).",
            parameter="calibration",
        )
    return ids[:least]


def _written(
    location: str, folder: ModelCacheConfig, config: CalibrationConfig, bars: Bars
) -> list[int]:
    """As many tokens of the model's own."""
    device = choose_device("cpu")
    opened = open_model(location, cache=folder, packer=device.packer(), progress=bars)
    executable = device.compile(opened.program, opened.weights())
    sequences = generate(
        executable,
        opened.shape,
        tokens=config.tokens + config.held_out,
        length=config.sequence,
        advance=lambda done, total: bars("Writing a text to calibrate on", done, total),
    )
    return [token for sequence in sequences for token in sequence]


def _calibrate(
    checkpoint: Checkpoint, ids: list[int], config: CalibrationConfig, bars: Bars
) -> Calibrated:
    shape = checkpoint.facts().shape
    names = list(checkpoint.tensor_names())
    done = iter(range(1, len(names) + 1))
    tensors = read_all(
        names, checkpoint.read, lambda: bars("Reading the weights", next(done), len(names))
    )
    length = min(config.sequence, shape.context_max)
    return calibrate(
        shape,
        tensors,
        list(cut(ids[: config.tokens], length=length)),
        held_out=list(cut(ids[config.tokens :], length=length)),
        config=config,
        advance=bars,
    )


def _write(folder: Path, checkpoint: Checkpoint, calibrated: Calibrated, codec: Codec) -> None:
    """The whole folder, its config.json last."""
    facts = checkpoint.facts()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_weights(folder, calibrated)
        config = None
        if facts.kind == "huggingface":
            source = Path(facts.path)
            config = read_object(source / CONFIG)
            for name in TOKENIZER_FILES:
                if (source / name).is_file():
                    shutil.copyfile(source / name, folder / name)
        else:
            write_folder(codec, folder)
        if not (folder / GENERATION).exists():
            write_generation(folder, facts.shape, facts.defaults)
        write_config(folder, facts.shape, calibrated, config)
    except OSError as error:
        raise Invalid(
            f"{folder} cannot be written: {error.strerror}.", parameter="output"
        ) from None
