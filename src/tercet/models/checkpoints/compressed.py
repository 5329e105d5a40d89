"""Checkpoints in the conventions of compressed-tensors: which scheme one has, and if it is served.

Format: https://github.com/vllm-project/compressed-tensors. Served is W8A8: `X.weight` in int8 with
`X.weight_scale`, one symmetric scale for each output channel (or one for all), and activations
that are quantized for each token while the model runs.
"""

from collections.abc import Mapping

from tercet.base.errors import Invalid
from tercet.models.families.build import unsupported

METHOD = "compressed-tensors"
FORMAT = "int-quantized"
WEIGHT = ".weight"
SCALE = ".weight_scale"
SERVED = "INT8 W8A8 (symmetric weights per channel, activations dynamic per token)"


def is_int8(config: Mapping[str, object]) -> bool:
    """True for a model in INT8, false for one that is not quantized; `Invalid` for any other."""
    said = config.get("quantization_config") or config.get("compression_config")
    if not said:
        return False
    fields = said if isinstance(said, Mapping) else {}
    method = fields.get("quant_method")
    if method != METHOD:
        raise unsupported(f'a model with quantized weights ("{method}")')
    if fields.get("format") != FORMAT:
        raise _refused(f'format "{fields.get("format")}"')
    groups = fields.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise _refused("no config_groups")
    for group in groups.values():
        _check_group(group)
    if fields.get("kv_cache_scheme"):
        raise _refused("a kv_cache_scheme")
    if _flag(fields.get("sparsity_config"), "format") not in (None, "dense"):
        raise _refused("a sparsity_config")
    return True


def quantization_config(ignored: list[str]) -> dict[str, object]:
    """What config.json says of a model in INT8; `ignored` modules are not quantized."""
    each = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": {**each, "strategy": "channel", "dynamic": False},
        "input_activations": {**each, "strategy": "token", "dynamic": True},
        "output_activations": None,
    }
    return {
        "quant_method": METHOD,
        "format": FORMAT,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ignored,
        "kv_cache_scheme": None,
    }


def _check_group(group: object) -> None:
    weights, inputs = _flag(group, "weights"), _flag(group, "input_activations")
    wanted = {"num_bits": 8, "type": "int", "symmetric": True}
    for what, scheme in (("weights", weights), ("input_activations", inputs)):
        if not isinstance(scheme, Mapping):
            raise _refused(f"{what} {scheme!r}")
        for key, value in wanted.items():
            if scheme.get(key, value) != value:
                raise _refused(f"{what} of {key} {scheme.get(key)!r}")
    if _flag(weights, "strategy") not in ("channel", "tensor"):
        raise _refused(f"weights of strategy {_flag(weights, 'strategy')!r}")
    if _flag(inputs, "strategy") != "token" or _flag(inputs, "dynamic") is not True:
        raise _refused("input_activations that are not dynamic per token")
    if _flag(group, "output_activations"):
        raise _refused("quantized output_activations")


def _flag(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, Mapping) else None


def _refused(what: str) -> Invalid:
    return unsupported(f"a model quantized by {METHOD} with {what} (served is {SERVED})")
