"""The compiled module, if this installation has one, and the instruction sets that it offers."""

import importlib
from functools import cache
from types import ModuleType

from tercet.base.errors import Invalid

MISSING = (
    "the native CPU device is not built: install a C++20 compiler (Debian: apt install g++) "
    "and run `make setup`"
)


@cache
def native() -> ModuleType | None:
    """The module, or None where it was not built or does not load on this machine."""
    try:
        return importlib.import_module("tercet.devices.cpu._native")
    except ImportError:
        return None


def usable_isas() -> list[str]:
    """Names of the instruction sets that this machine can run, best first."""
    module = native()
    return [] if module is None else list(module.usable_isas())


def chosen_isa() -> str:
    """The best instruction set, or the one that the variable TERCET_ISA forces; `Invalid` if that
    one cannot run here.
    """
    module = native()
    if module is None:
        raise Invalid(f"{MISSING}.", code="device_not_served", parameter="device")
    try:
        return str(module.chosen_isa())
    except ValueError as error:
        raise Invalid(str(error), code="device_not_served", parameter="TERCET_ISA") from None
