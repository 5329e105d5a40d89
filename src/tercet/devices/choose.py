"""Which device a name means. Each is imported only when it is chosen: a front never loads BLAS."""

import time

from tercet.base.errors import Invalid
from tercet.devices.contract import Device
from tercet.devices.cost.config import CostConfig
from tercet.devices.cpu.native import native

DEVICE_NAMES = ("auto", "cpu", "reference", "cuda", "npu", "cost")
_MISSING = {
    "cuda": "NVIDIA GPUs need kernels and a device that are not built yet (docs/gpu.md)",
    "npu": "Ascend NPUs need kernels and a device that are not built yet (docs/gpu.md)",
}


def resolve_device(name: str, *, has_weights: bool) -> str:
    """`cpu`, `reference` or `cost`: the device that will serve. `Invalid` says what is missing
    otherwise.

    `auto` is the cost device for a model without weights, and the CPU for any other. Where the
    native CPU device was not built, the reference device stands in for it.
    """
    if name not in DEVICE_NAMES:
        raise Invalid(
            f"device {name!r} is unknown, expected one of {', '.join(DEVICE_NAMES)}.",
            code="unknown_device",
            parameter="device",
        )
    if name in _MISSING:
        raise Invalid(
            f"device {name!r} is not served yet: {_MISSING[name]}; use --device cpu.",
            code="device_not_served",
            parameter="device",
        )
    if name == "auto" and not has_weights:
        return "cost"
    if name in {"cpu", "reference"} and not has_weights:
        raise Invalid(
            f"device {name!r} cannot serve a model without weights; use --device cost.",
            code="device_not_served",
            parameter="device",
        )
    if name in {"auto", "cpu"}:
        return "cpu" if native() is not None else "reference"
    return name


def choose_device(name: str, *, has_weights: bool = True, cost: CostConfig | None = None) -> Device:
    """The device that the name means; a cost device really sleeps its steps' durations.

    `Invalid` as `resolve_device` says.
    """
    kind = resolve_device(name, has_weights=has_weights)
    if kind == "cost":
        from tercet.devices.cost.device import CostDevice

        return CostDevice(config=cost or CostConfig(), sleep=_sleep)
    if kind == "cpu":
        from tercet.devices.cpu.device import CpuDevice

        return CpuDevice()
    from tercet.devices.reference.device import ReferenceDevice

    return ReferenceDevice()


def _sleep(duration_ns: int) -> None:
    time.sleep(duration_ns / 1e9)
