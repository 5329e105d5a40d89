"""The progress page: consistent samples, whoever is stopped when."""

import struct
import threading

from tercet.engine.progress import PROGRESS_BYTES, ProgressReader, ProgressWriter


def page():
    return memoryview(bytearray(PROGRESS_BYTES))


def test_a_new_page_says_that_nothing_runs():
    sample = ProgressReader(page()).read()
    assert (sample.steps, sample.step_started, sample.has_work, sample.loop_beat) == (
        0,
        0,
        False,
        0,
    )


def test_a_sample_tells_what_was_written():
    shared = page()
    writer, reader = ProgressWriter(shared), ProgressReader(shared)
    writer.step_started(1_000, 250)
    writer.beat(1_100, has_work=True)
    sample = reader.read()
    assert (sample.steps, sample.step_started, sample.step_predicted_ns) == (0, 1_000, 250)
    assert (sample.has_work, sample.loop_beat) == (True, 1_100)
    writer.step_done()
    writer.beat(1_200, has_work=False)
    sample = reader.read()
    assert (sample.steps, sample.step_started, sample.step_predicted_ns) == (1, 0, 0)
    assert (sample.has_work, sample.loop_beat) == (False, 1_200)


def test_a_writer_stopped_in_the_middle_gives_no_sample():
    for offset in (0, 64):
        shared = page()
        ProgressWriter(shared).beat(5, has_work=True)
        struct.pack_into("@Q", shared, offset, 7)
        assert ProgressReader(shared).read() is None


def test_samples_are_never_torn():
    shared = page()
    writer, reader = ProgressWriter(shared), ProgressReader(shared)
    running = threading.Event()

    def write():
        for step in range(1, 20_001):
            writer.step_started(step, 3 * step)
            writer.step_done()
        running.set()

    thread = threading.Thread(target=write)
    thread.start()
    last = 0
    while not running.is_set():
        sample = reader.read()
        if sample is None:
            continue
        assert sample.steps >= last
        assert sample.step_predicted_ns == 3 * sample.step_started
        assert sample.step_started in (0, sample.steps + 1)
        last = sample.steps
    thread.join()
    assert reader.read().steps == 20_000
