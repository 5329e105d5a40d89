"""An agent with a pool that stores notes: what executors ask it, and memory that moves read."""

from array import array

from fake_engine import BLOCK
from peer_engine import integers

from tercet.messages.kv import (
    PoolDone,
    PoolFind,
    PoolFound,
    PoolPut,
    PoolReady,
    PoolStored,
    PoolValue,
    PoolWant,
    Strip,
)

AGENT = "agent/local"
MEMORY = "local/dram/0"
KEY = 16
BLOCK_BYTES = 64


class FakePool:
    """Keeps every value; `lost` of its keys are told of and then cannot be read."""

    def __init__(self):
        self.values: dict[tuple[str, bytes], list[int]] = {}
        """(namespace, key) -> units, one a block."""
        self.notes: dict[tuple[int, int], tuple[int, ...] | None] = {}
        self.lost: dict[bytes, None] = {}
        self.refuses = False
        """Every put."""
        self.asked: dict[tuple[str, int], PoolFind] = {}
        self.num_units = 0

    def heard(self, sender, message, engine):
        """Answer an executor; `engine` is its own, whose blocks a put reads."""
        match message:
            case PoolFind():
                found = 0
                keys = self._keys(message.keys)
                while found < len(keys) and (message.namespace, keys[found]) in self.values:
                    found += 1
                self.asked[sender, message.ask] = message
                return PoolFound(ask=message.ask, tiers="d" * found, bytes_each=BLOCK_BYTES)
            case PoolWant():
                find = self.asked[sender, message.ask]
                keys = self._keys(find.keys)[: message.count]
                values = tuple(self._value(find.namespace, key) for key in keys)
                return PoolReady(ask=message.ask, first=0, values=values, lease_ns=10**10)
            case PoolPut():
                return PoolStored(put=message.put, stored=self._put(message, engine))
            case PoolDone():
                return None

    def _keys(self, keys):
        return [keys[at : at + KEY] for at in range(0, len(keys), KEY)]

    def _value(self, namespace, key):
        units = self.values.get((namespace, key))
        if units is None or key in self.lost:
            return None
        packed = array("i", units).tobytes()
        return PoolValue(Strip(MEMORY, 0, BLOCK_BYTES, BLOCK_BYTES, packed), 0)

    def _put(self, message, engine):
        stored = 0
        if self.refuses:
            return stored
        for key, value in zip(self._keys(message.keys), message.values, strict=True):
            blocks = integers(value.source.units)
            lives = integers(value.source.lives, "I")
            pairs = zip(blocks, lives, strict=True)
            if engine is None or any(engine.lives.get(block) != life for block, life in pairs):
                continue
            units = []
            for block in blocks:
                self.num_units += 1
                units.append(self.num_units)
                for at in range(BLOCK):
                    self.notes[self.num_units, at] = engine.notes.get((block, at))
            self.values.setdefault((message.namespace, key), units)
            stored += 1
        return stored
