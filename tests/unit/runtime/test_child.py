from tercet.runtime.child import SILENT_LOOKS_MAX, Child
from tercet.runtime.control import Channel


def child() -> Child:
    channel: Channel = None  # type: ignore[assignment]
    return Child("front", 1, channel)


def test_a_process_that_beat_once_must_go_on() -> None:
    one = child()
    one.beat()
    assert [one.hangs() for _ in range(SILENT_LOOKS_MAX)] == [False] * SILENT_LOOKS_MAX
    assert one.hangs()


def test_a_beat_acquits() -> None:
    one = child()
    for _ in range(10):
        one.beat()
        assert not any(one.hangs() for _ in range(SILENT_LOOKS_MAX))


def test_a_start_may_take_its_time() -> None:
    one = child()
    assert not any(one.hangs() for _ in range(10 * SILENT_LOOKS_MAX))
