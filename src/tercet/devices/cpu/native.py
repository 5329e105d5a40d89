"""The compiled module, if this installation has one, and the instruction sets that it offers."""

import importlib
import os
from functools import cache
from types import ModuleType

from tercet.base.errors import Invalid

ISA_VARIABLE = "TERCET_ISA"
"""Forces an instruction set: a name of `usable_isas`."""
CHECK_VARIABLE = "TERCET_CHECK"
"""Set and not 0: every operation's results are checked, an error names the operation."""
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
    """The best instruction set, or the one that the variable forces; `Invalid` if it cannot run."""
    usable, forced = usable_isas(), os.environ.get(ISA_VARIABLE, "")
    if not usable:
        raise Invalid(f"{MISSING}.", code="device_not_served", parameter="device")
    if forced and forced not in usable:
        raise Invalid(
            f"{ISA_VARIABLE} is {forced!r}, this machine can run {', '.join(usable)}.",
            code="device_not_served",
            parameter=ISA_VARIABLE,
        )
    return forced or usable[0]


def checks_results() -> bool:
    """True if a person asked for checked results."""
    return os.environ.get(CHECK_VARIABLE, "0") not in {"", "0"}
