from array import array

from executor_harness import task

from tercet.cache.blocks import BlockPool
from tercet.messages.plan import SlotOpening
from tercet.messages.wire import SubmitTask
from tercet.scheduling.batch import BatchWriter, Chunk
from tercet.scheduling.run import TaskRun


def _run(slot):
    message = SubmitTask(task=task(slot + 1, [1]), reply="front/0")
    run = TaskRun(message, order=slot, now=0, context_max=100)
    run.slot = slot
    return run


def _ints(data):
    values = array("i")
    values.frombytes(data)
    return list(values)


def _write(writer, decodes, *, grown=None, chunks=()):
    return writer.write(1, ends=((), ()), decodes=decodes, grown=grown or {}, chunks=list(chunks))


def test_decodes_stand_first_then_chunks():
    decodes = [_run(4), _run(0), _run(7)]
    opening = SlotOpening(slot=9, task=task(10, [1]))
    plan = BatchWriter(BlockPool(400)).write(
        5,
        ends=((3,), (opening,)),
        decodes=decodes,
        grown={2: (17,), 0: (91, 92)},
        chunks=[Chunk(_run(9), 512, False), Chunk(_run(3), 7, True)],
    )
    assert (plan.step, plan.closes, plan.opens) == (5, (3,), (opening,))
    assert _ints(plan.slots) == [4, 0, 7, 9, 3]
    assert _ints(plan.rows) == [1, 1, 1, 512, 7]
    assert list(plan.samples) == [1, 1, 1, 0, 1]
    assert _ints(plan.growth) == [2, 0, 1, 0, 0]
    assert _ints(plan.blocks) == [91, 92, 17]


def test_lives_of_fresh_blocks_are_told():
    pool = BlockPool(8)
    for _ in range(3):
        pool.take()
    for block in (1, 1, 2):
        pool.drop(block)
        pool.take()
    opening = SlotOpening(
        slot=9, task=task(10, [1]), computed=16, blocks=array("i", [0, 1]).tobytes()
    )
    plan = BatchWriter(pool).write(
        5, ends=((), (opening,)), decodes=[_run(4)], grown={0: (2,)}, chunks=[]
    )
    assert _ints(plan.begins) == [3, 2], "block 0 is a hit: its life goes on"
    assert _write(BatchWriter(pool), [_run(4)]).begins == b""


def test_arrays_are_little_endian_i4():
    plan = _write(BatchWriter(BlockPool(400)), [_run(258)])
    assert plan.slots == b"\x02\x01\x00\x00"


def test_the_same_decodes_cost_no_new_bytes():
    writer = BatchWriter(BlockPool(400))
    decodes = [_run(1), _run(2)]
    first, second = _write(writer, decodes), _write(writer, decodes, grown={1: (5,)})
    assert second.slots is first.slots
    assert _ints(second.growth) == [0, 1]
    assert _ints(_write(writer, decodes).growth) == [0, 0]
    assert _ints(_write(writer, [_run(2)]).slots) == [2]


def test_a_plan_may_hold_only_chunks():
    plan = _write(BatchWriter(BlockPool(400)), [], chunks=[Chunk(_run(2), 3, True)])
    assert (_ints(plan.slots), _ints(plan.rows), list(plan.samples)) == ([2], [3], [1])
    assert _ints(plan.growth) == [0]
