"""Have a model's files in place before anything serves: fetch, check, build, with progress.

It happens in a child process, so that whoever asks (a supervisor to be) stays small.
"""

import json
import os
import sys
import traceback
from dataclasses import dataclass

from tercet.base.errors import Invalid
from tercet.cli.progress import Bars
from tercet.devices.cpu.native import MISSING
from tercet.runtime.config import TreeConfig


@dataclass(frozen=True)
class Prepared:
    """A model whose files are in place."""

    name: str
    location: str
    """A source under which every process can open it, without a network."""
    image: str
    """Key of its image; empty: it has none."""
    weights: str
    """Digest of its weights, where other hosts may join; empty: nobody asked, or it has none."""


def prepare(config: TreeConfig) -> Prepared:
    """Do all that the configuration's executors would find missing; `Invalid` with the sentence of
    whatever is wrong.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _be_the_child(config, writer)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    if not said:
        raise Invalid(f"opening {config.model!r} ended without an answer", code="failed")
    answer = json.loads(said)
    if "sentence" in answer:
        raise Invalid(answer["sentence"], code=answer["code"])
    return Prepared(answer["name"], answer["location"], answer["image"], answer["weights"])


def _be_the_child(config: TreeConfig, writer: int) -> None:
    status = 1
    try:
        answer = _open(config)
        os.write(writer, json.dumps(answer).encode())
        status = 0
    except KeyboardInterrupt:
        answer = {"sentence": "interrupted", "code": "interrupted"}
        os.write(writer, json.dumps(answer).encode())
    finally:
        if status and sys.exc_info()[0] not in {None, KeyboardInterrupt}:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(status)


def _open(config: TreeConfig) -> dict[str, str]:
    from tercet.models.image.shelf import Shelf
    from tercet.runtime.opening import cache_of, open_configured

    bars = Bars()
    try:
        opened = open_configured(config, progress=bars)
    except Invalid as error:
        return {"sentence": error.sentence, "code": error.code}
    finally:
        bars.close()
    if opened.device.name == "reference" and config.runtime.device != "reference":
        print(f"tercet: {MISSING}; the reference device serves until then.", file=sys.stderr)
    image = opened.model.image
    key = "" if image is None else image.header.key
    weights = ""
    if key and config.runtime.cluster_address is not None:
        weights = Shelf(cache_of(config)).weights(key) or ""
    model = opened.model
    return {"location": model.location, "name": model.name, "image": key, "weights": weights}
