"""`signal`: a step counts its layers on a clock, in order, and computes what it would without."""

import numpy as np
import pytest
from native_models import ISAS, SHAPES, arranged, stored

from tercet.devices.contract import CompileOptions
from tercet.devices.cpu.device import CpuDevice
from tercet.devices.direct import ArrayKv, Direct, Sequence
from tercet.devices.reference import ReferenceDevice
from tercet.models.families.build import build
from tercet.program.costs import cost
from tercet.program.formats import Format
from tercet.program.operations import Append, Signal
from tercet.program.signal import signal

PROGRAM = arranged(SHAPES["llama"], Format.BF16) if ISAS else build(SHAPES["llama"])
DEVICES = [ReferenceDevice, *([CpuDevice] if ISAS else [])]


def test_every_layer_is_signalled_once_right_behind_its_append() -> None:
    operations = signal(PROGRAM).operations
    places = [i for i, one in enumerate(operations) if isinstance(one.attributes, Signal)]
    assert [operations[place].attributes for place in places] == [Signal(1), Signal(2)]
    for place in places:
        before = operations[place - 1]
        assert isinstance(before.attributes, Append)
        assert before.inputs[0] == operations[place].inputs[0]
    assert cost(signal(PROGRAM)) == cost(PROGRAM)


def compiled(make, program):
    device = make()
    return device.compile(program, stored(program, device.packer()), CompileOptions())


@pytest.mark.parametrize("make", DEVICES)
def test_a_step_counts_its_layers_and_changes_nothing_else(make) -> None:
    plain, signalling = (compiled(make, one) for one in (PROGRAM, signal(PROGRAM)))
    clock = np.array([5 << 16], np.uint64)
    outputs = []
    for executable in (plain, signalling):
        direct = Direct(executable, 16)
        executable.bind(ArrayKv(direct.kv.blocks, signals=clock))
        steps = [direct.batch([(Sequence(), [1, 2, 3, 4])], every_row=True) for _ in range(2)]
        outputs.append([executable.logits(step).copy() for step in steps])
    assert np.array_equal(*outputs)
    assert clock[0] == (5 << 16) + 2 * 2


@pytest.mark.parametrize("make", DEVICES)
def test_signals_that_nobody_looks_at_are_no_error(make) -> None:
    executable = compiled(make, signal(PROGRAM))
    assert len(Direct(executable, 16).run([(Sequence(), [1, 2, 3])]).tokens) == 1
