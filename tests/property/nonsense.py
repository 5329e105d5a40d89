"""Records of any type with values that no sound peer says, and some that one might."""

import random

from msgspec import Struct, structs
from msgspec import inspect as kinds

NUMBERS = [0, 1, 2, 3, 5, 8, 16, 64, -1, -2, -100, 2**31, 2**32, 2**62, 2**63 - 1, 2**64 - 1]
SIZES = [0, 1, 3, 4, 8, 15, 16, 17, 32, 64, 80]


class Nonsense:
    """Draws by a seed; `words` are strings, `lumps` bytes that mean something where they go."""

    def __init__(self, seed: int, *, words: list[str], lumps: list[bytes]) -> None:
        self.rand = random.Random(seed)
        self._words = [*words, "", "x", "ß", "dDxS"]
        self._lumps = lumps

    def record(self, kind: type) -> object:
        return self._make(kinds.type_info(kind))

    def changed(self, record: Struct) -> object:
        """The same with another value in one of its fields."""
        field = self.rand.choice(kinds.type_info(type(record)).fields)
        return structs.replace(record, **{field.name: self._make(field.type)})

    def _make(self, kind: kinds.Type) -> object:
        rand, found = self.rand, None
        match kind:
            case kinds.IntType():
                found = rand.choice(NUMBERS)
            case kinds.StrType():
                found = rand.choice(self._words)
            case kinds.BoolType():
                found = rand.random() < 0.5
            case kinds.BytesType():
                lump = rand.choice(self._lumps)
                found = rand.choice([lump, lump + b"x", bytes(rand.choice(SIZES)), b"\xff" * 16])
            case kinds.EnumType():
                found = rand.choice(list(kind.cls))
            case kinds.UnionType():
                found = self._make(rand.choice(kind.types))
            case kinds.VarTupleType():
                found = tuple(self._make(kind.item_type) for _ in range(rand.choice([0, 1, 2, 5])))
            case kinds.StructType():
                given = [one for one in kind.fields if one.required or rand.random() < 0.6]
                found = kind.cls(**{one.name: self._make(one.type) for one in given})
            case _:
                assert isinstance(kind, kinds.NoneType), kind
        return found
