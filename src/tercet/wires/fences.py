"""The words beside a memory: generations before and after a copy, the layer clock until then."""

import ctypes
import time
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tercet.messages.events import MoveEnd
from tercet.messages.kv import Strip
from tercet.wires.contract import Fence, Region, WireFailure
from tercet.wires.strips import U32, lives_of, units_of
from tercet.wires.sums import acquire

PATIENCE_NS = 30_000_000_000
"""How long a move without a deadline may take."""
_LOOK_S = 50e-6
_CLOCK_LAYERS = 16
"""Bits of the layer clock below the step."""


def until_of(deadline: int) -> int:
    """When a move has failed."""
    return deadline or time.monotonic_ns() + PATIENCE_NS


def check_lives(region: Region, strip: Strip) -> None:
    """STALE where a unit is in another generation than the strip says."""
    if not strip.lives:
        return
    fence = region.fence
    if fence is None:
        raise WireFailure(MoveEnd.STALE, f"{region.memory} knows no generations")
    units = units_of(strip)
    if len(units) and int(units.max()) >= fence.units:
        raise WireFailure(MoveEnd.GONE, f"{region.memory} has {fence.units} units")
    if not np.array_equal(_lives(fence)[units], lives_of(strip)):
        raise WireFailure(MoveEnd.STALE, f"units of {region.memory} began other lives")


def begin_lives(region: Region, strip: Strip) -> None:
    """Store which lives the units of one's own memory begin, before anything is written to them:
    whoever still reads a former one can tell. Doing it again changes nothing.
    """
    if strip.lives and region.fence is not None:
        _lives(region.fence)[units_of(strip)] = lives_of(strip)


def wait_for_layer(
    region: Region, point: tuple[int, int], until: int, over: Callable[[], bool]
) -> None:
    """Return once the clock of the region's device has passed layer `point[1]` of step `point[0]`
    (0: at once); LATE when that was not before `until`, GONE when the wait is over otherwise.
    """
    step, layer = point
    if not step:
        return
    if region.fence is None or not region.fence.clock:
        raise WireFailure(MoveEnd.GONE, f"{region.memory} has no layer clock")
    wanted = step << _CLOCK_LAYERS | layer
    while acquire(region.fence.clock) < wanted:
        if over():
            raise WireFailure(MoveEnd.GONE, f"{region.memory} went while a layer was waited for")
        if time.monotonic_ns() > until:
            raise WireFailure(MoveEnd.LATE, f"layer {layer} of step {step} is not there yet")
        time.sleep(_LOOK_S)


@lru_cache(maxsize=256)
def _lives(fence: Fence) -> U32:
    words = (ctypes.c_uint32 * fence.units).from_address(fence.lives)
    return np.ctypeslib.as_array(words)
