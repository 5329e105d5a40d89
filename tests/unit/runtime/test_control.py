"""Notes over a channel: as long as they must be, with their descriptors."""

import os
from pathlib import Path

import pytest

from tercet.base.errors import Invalid
from tercet.base.ids import ExecutorId
from tercet.runtime.config import CHAT_TEMPLATE_BYTES_MAX, TreeConfig
from tercet.runtime.control import Failed, Held, Launch, Note, channel_pair

TEMPLATE = "{# a comment #}" * (CHAT_TEMPLATE_BYTES_MAX // 15)
OPEN = Path("/proc/self/fd")


def num_open() -> int:
    return len(list(OPEN.iterdir()))


def launch(template: str) -> Launch:
    return Launch(config=TreeConfig(model="m", cache_folder="/tmp", chat_template=template))


@pytest.mark.parametrize("size", [0, 60_000, 65_000, 66_000, 300_000, len(TEMPLATE)])
def test_a_note_arrives_however_long_it_is(size: int) -> None:
    one, other = channel_pair()
    note = launch(TEMPLATE[:size])
    assert one.send(note)
    assert one.send(Failed(sentence="the next"))
    assert other.receive() == (note, [])
    assert other.receive() == (Failed(sentence="the next"), [])
    one.close()
    assert other.receive() is None
    other.close()


@pytest.mark.parametrize("length", [1, 100_000])
def test_descriptors_come_with_their_note_in_order(length: int) -> None:
    before = num_open()
    one, other = channel_pair()
    files = [os.memfd_create(name) for name in "abc"]
    note: Note = Held(executor=ExecutorId(1), pid=2, parts=("x" * length,))
    assert one.send(note, tuple(files))
    received = other.receive()
    assert received is not None
    assert received[0] == note
    names = [str((OPEN / str(file)).readlink()) for file in received[1]]
    assert names == [f"/memfd:{name} (deleted)" for name in "abc"]
    for file in (*files, *received[1]):
        os.close(file)
    one.close()
    other.close()
    assert num_open() == before


def test_a_template_beyond_its_bound_is_refused_in_a_sentence() -> None:
    with pytest.raises(Invalid, match="The chat template has"):
        launch("é" * (CHAT_TEMPLATE_BYTES_MAX // 2 + 1))
