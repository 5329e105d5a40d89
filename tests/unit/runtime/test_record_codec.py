import pytest

from tercet.base.ids import Address, Epoch, ExecutorId, TaskId
from tercet.jobs.job import Task
from tercet.jobs.sampling import SamplingParameters
from tercet.messages.effects import Fact
from tercet.messages.events import JobSubmitted, Received, StepDone, Woke
from tercet.messages.plan import StepResult
from tercet.messages.wire import (
    CancelTask,
    ExecutorGone,
    Hello,
    Load,
    Members,
    SubmitTask,
    TaskUpdate,
    TaskUpdates,
)
from tercet.runtime.codec import (
    Facts,
    Malformed,
    Parcel,
    decode_event,
    decode_hello,
    decode_parcel,
    encode,
    encode_event,
)

TASK = Task(
    id=TaskId((1 << 63) + 5),
    model="m",
    prompt=(1, 2, 3),
    sampling=SamplingParameters(max_tokens=3, seed=2**64 - 1, logit_bias=((4, -1.5),)),
    generated=(9,),
)
PARCELS: list[Parcel] = [
    SubmitTask(task=TASK, reply=Address("front/0"), alone=True, leader=TaskId(4)),
    CancelTask(task=TaskId(1)),
    TaskUpdates(
        executor=ExecutorId(1),
        updates=(TaskUpdate(TaskId(1), started=True), TaskUpdate(TaskId(2), tokens=(5, 6))),
        load=Load(1, 2, 3, 4),
    ),
    ExecutorGone(executor=ExecutorId(1), reason="é"),
    Members(version=1, executors=(), settled=True),
    Facts(facts=(Fact(name="step.done", values=(("rows", 1.5),), labels=(("a", "b"),)),)),
]


@pytest.mark.parametrize("parcel", PARCELS, ids=lambda parcel: type(parcel).__name__)
def test_what_was_sent_is_what_comes(parcel: Parcel) -> None:
    assert decode_parcel(encode(parcel)) == parcel


@pytest.mark.parametrize(
    "event",
    [
        Woke(key="k"),
        StepDone(result=StepResult(step=3, counts=b"\1\0\0\0", tokens=b"\2\0\0\0")),
        Received(sender=Address("a"), epoch=Epoch(1), message=PARCELS[0]),
    ],
)
def test_events_of_a_recording_come_back(event: Woke) -> None:
    assert decode_event(encode_event(7, event)) == (7, event)


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x81", encode(Woke(key="k")), encode(PARCELS[1])[:-1]]
)
def test_anything_else_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode_parcel(data)
    with pytest.raises(Malformed):
        decode_hello(data)
    with pytest.raises(Malformed):
        decode_event(data)


@pytest.mark.parametrize("levels", [900, 1100, 100_000])
def test_what_is_nested_too_deeply_is_malformed(levels: int) -> None:
    """In a field that nobody knows, too: it is skipped level by level."""
    nested = b"\x91" * levels + b"\xc0"
    hello = Hello(protocol=1, sender=Address("a"), epoch=Epoch(1), nonce=b"", proof=b"")
    with pytest.raises(Malformed):
        decode_parcel(b"\x82" + encode(PARCELS[1])[1:5] + b"\xa1z" + nested)
    with pytest.raises(Malformed):
        decode_event(b"\x92\x01" + nested)
    said = encode(hello)
    more = bytes([said[0] + 1]) + said[1:] + b"\xa1z" + nested
    if levels < 1000:
        assert decode_hello(more) == hello
    else:
        with pytest.raises(Malformed):
            decode_hello(more)


def test_a_message_is_no_hello_and_no_event() -> None:
    with pytest.raises(Malformed):
        decode_hello(encode(PARCELS[1]))
    assert JobSubmitted.__struct_config__.tag == "JobSubmitted"
