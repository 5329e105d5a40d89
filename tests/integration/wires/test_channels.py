"""Channels between processes of a tree: notes with descriptors."""

import os

from tercet.runtime.control import Go, Hold, channel_pair


def test_descriptors_come_with_their_note_and_are_not_inherited():
    """A process that is executed later must not keep the memory of executors that are gone."""
    ours, theirs = channel_pair()
    read, write = os.pipe()
    note = Hold(executor=3, pid=4, parts=("a", "b"))
    assert ours.send(note, (read, write))
    received, descriptors = theirs.receive()
    assert received == note
    assert len(descriptors) == 2
    assert not any(os.get_inheritable(descriptor) for descriptor in descriptors)
    os.write(descriptors[1], b"x")
    assert os.read(descriptors[0], 1) == b"x"
    assert ours.send(Go())
    assert theirs.receive() == (Go(), [])
    for descriptor in (read, write, *descriptors):
        os.close(descriptor)
    ours.close()
    assert theirs.receive() is None
    theirs.close()
