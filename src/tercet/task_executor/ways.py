"""Whether another executor's blocks are of use here, and how they come."""

from tercet.messages.kv import Reach, Way
from tercet.task_executor.config import Capacity
from tercet.task_executor.neighbours import Neighbours
from tercet.transfer.config import TransferConfig


def readable(reach: Reach, capacity: Capacity) -> bool:
    """Say whether its blocks are what this executor would have computed, bit for bit."""
    same = reach.layout is not None and reach.layout == capacity.reach.layout
    return same and reach.fingerprint == capacity.fingerprint


def way_to(reach: Reach, config: TransferConfig, neighbours: Neighbours) -> Way:
    """Choose how: what can be read in place needs no copy at all."""
    here = neighbours.readable(reach.memory)
    if config.way == "auto":
        return Way.REFERENCE if here else Way.LAYER
    way = Way(config.way)
    return Way.REQUEST if way is Way.REFERENCE and not here else way
