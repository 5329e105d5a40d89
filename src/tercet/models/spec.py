"""Models without a checkpoint, spelled as a short line: `random:llama?layers=2&seed=1`.

`random:` models have weights made from the numbers of the line; `cost:` models have none: their
device makes tokens up. Both speak plain bytes.
"""

from collections.abc import Mapping

from tercet.base.errors import Invalid
from tercet.base.model import ModelShape
from tercet.base.tokenizer import BYTES_END_IDS, BYTES_VOCAB

RANDOM = "random:"
COST = "cost:"
VALUE_MAX = 1 << 24
LAYERS_MAX = 1024
_TINY = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 128,
         "vocab": BYTES_VOCAB, "context": 4096}  # fmt: skip
SIZES: Mapping[str, Mapping[str, int]] = {
    "tiny": _TINY,
    "135m": {"layers": 30, "hidden": 576, "heads": 9, "kv_heads": 3, "head_dim": 64, "ffn": 1536,
             "vocab": 49_152, "context": 8192},
    "8b": {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128,
           "ffn": 14_336, "vocab": 128_256, "context": 131_072},
    "70b": {"layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 8, "head_dim": 128,
            "ffn": 28_672, "vocab": 128_256, "context": 131_072},
}  # fmt: skip
"""Named sizes of `cost:` models; `tiny` is also the default of `random:` ones."""
RANDOM_FAMILIES = ("llama", "qwen2", "qwen3")


def parse_random(source: str) -> tuple[ModelShape, int]:
    """Shape and seed of `random:FAMILY?...`."""
    family, given = _parse(source.removeprefix(RANDOM), ("seed", "tied"))
    if family not in RANDOM_FAMILIES:
        raise _unknown(source, "family", family, RANDOM_FAMILIES)
    numbers = dict(_TINY) | given
    return _shape(source, family, numbers), given.get("seed", 0)


def parse_cost(source: str) -> ModelShape:
    """Shape of `cost:SIZE?...`."""
    size, given = _parse(source.removeprefix(COST), ())
    if size not in SIZES:
        raise _unknown(source, "size", size, tuple(SIZES))
    return _shape(source, "llama", dict(SIZES[size]) | given)


def _parse(text: str, more: tuple[str, ...]) -> tuple[str, dict[str, int]]:
    """The name before the question mark and the numbers behind it."""
    name, _, query = text.partition("?")
    known = (*_TINY, *more)
    numbers: dict[str, int] = {}
    for pair in query.split("&") if query else []:
        key, _, value = pair.partition("=")
        if key not in known:
            raise _unknown(text, "setting", key, known)
        if not (value.isascii() and value.isdigit() and int(value[:20]) <= VALUE_MAX):
            raise Invalid(
                f"{text}: {key} is {value!r}, expected an integer from 0 to {VALUE_MAX}.",
                code="invalid_model",
            )
        numbers[key] = int(value)
    return name, numbers


def _shape(source: str, family: str, numbers: Mapping[str, int]) -> ModelShape:
    for key, least in (("vocab", BYTES_VOCAB), ("head_dim", 2), *((key, 1) for key in _TINY)):
        if numbers[key] < least:
            raise Invalid(
                f"{source}: {key} is {numbers[key]}, expected at least {least}.",
                code="invalid_model",
            )
    if numbers["layers"] > LAYERS_MAX:
        raise Invalid(
            f"{source}: layers is {numbers['layers']}, expected at most {LAYERS_MAX}.",
            code="invalid_model",
        )
    if numbers["heads"] % numbers["kv_heads"] or numbers["head_dim"] % 2:
        raise Invalid(
            f"{source}: heads ({numbers['heads']}) must be a multiple of kv_heads "
            f"({numbers['kv_heads']}), and head_dim ({numbers['head_dim']}) even.",
            code="invalid_model",
        )
    return ModelShape(
        family=family,
        num_layers=numbers["layers"],
        hidden=numbers["hidden"],
        num_heads=numbers["heads"],
        num_kv_heads=numbers["kv_heads"],
        head_dim=numbers["head_dim"],
        ffn=numbers["ffn"],
        vocab=numbers["vocab"],
        context_max=numbers["context"],
        norm_eps=1e-5,
        rope_theta=10_000.0,
        tied_embeddings=bool(numbers.get("tied", 0)),
        attention_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        end_ids=BYTES_END_IDS,
    )


def _unknown(source: str, what: str, name: str, known: tuple[str, ...]) -> Invalid:
    from difflib import get_close_matches  # only for a mistake

    near = get_close_matches(name, known, 1)
    hint = f" (nearest: {near[0]})" if near else ""
    return Invalid(
        f"{source}: unknown {what} {name!r}{hint}; known are {', '.join(known)}.",
        code="invalid_model",
    )
