"""The house rules as data: who may import whom, what is banned where, and how big things are."""

from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "tercet"
TESTS = Path(__file__).parents[1]

PURE = (
    "base",
    "jobs",
    "messages",
    "cache",
    "pool",
    "transfer",
    "scheduling",
    "routing",
    "scaling",
    "job_executor",
    "task_executor",
    "node_agent",
    "cluster_manager",
)
DECISIONS_AND_MACHINES = PURE[3:]

_EVERYTHING_ELSE = frozenset({"*"})

MAY_IMPORT: dict[str, frozenset[str]] = {
    "base": frozenset(),
    "jobs": frozenset({"base"}),
    "messages": frozenset({"base", "jobs"}),
    "cache": frozenset({"base"}),
    "pool": frozenset({"base"}),
    "transfer": frozenset({"base", "messages"}),
    "scheduling": frozenset({"base", "jobs", "messages", "cache"}),
    "routing": frozenset({"base", "jobs", "cache"}),
    "scaling": frozenset({"base"}),
    "job_executor": frozenset({"base", "jobs", "messages", "routing"}),
    "task_executor": frozenset({"base", "jobs", "messages", "cache", "transfer", "scheduling"}),
    "node_agent": frozenset({"base", "messages", "pool", "transfer"}),
    "cluster_manager": frozenset({"base", "messages", "scaling"}),
    "text": frozenset({"base"}),
    "program": frozenset({"base"}),
    "models": frozenset({"base", "program"}),
    "devices": frozenset({"base", "program"}),
    "engine": frozenset({"base", "jobs", "messages", "program", "models", "devices"}),
    "quantization": frozenset({"base", "program", "models", "devices"}),
    "wires": frozenset({"base", "messages", "devices"}),
    "observe": frozenset({"base", "messages"}),
    "runtime": _EVERYTHING_ELSE - {"sim"},
    "sim": frozenset(
        {*PURE, "program", "models", "devices", "engine", "observe"},
    ),
    "api": frozenset({"base", "jobs", "messages", "text", "observe"}),
    "bench": frozenset({"base", "jobs", "observe"}),
    "llm": _EVERYTHING_ELSE,
    "cli": _EVERYTHING_ELSE,
    "__init__": frozenset({"llm"}),
}
"""docs/ARCHITECTURE.md, "Shape": what is not written is forbidden; `*` is everything above."""

MAY_IMPORT_LATE = ("llm", "cli", "__init__", "devices.choose", "models.sources", "runtime")
"""Where an own package may be imported inside a function: the composition roots, the choice of a
device and of a checkpoint's reader, and `runtime`, whose processes each load only what they run."""

PURE_LIBRARIES = frozenset(
    {
        "abc",
        "array",
        "bisect",
        "collections",
        "dataclasses",
        "enum",
        "functools",
        "hashlib",
        "heapq",
        "itertools",
        "math",
        "msgspec",
        "operator",
        "struct",
        "sys",
        "typing",
    },
)
"""All that a pure package may import from outside: nothing here knows time, chance or the world."""

BANNED_CALLS_IN_PURE = {
    "print": "emit a Fact",
    "open": "ask the driver by an effect",
    "input": "take it as an event",
    "id": "issue an id from base.ids",
    "hash": "use blake2b: builtin hashes differ between runs",
    "set": "use a dict: set order can reach a decision",
    "exec": "write it out",
    "eval": "write it out",
    "globals": "pass it in",
    "__import__": "import it at the top",
}

BANNED_NAMES = ("utils", "util", "common", "helper", "helpers", "manager", "managers", "misc")
"""Modules and packages may not be called so: name the noun."""

BANNED_WORDS = (r"\bTODO\b", r"\bFIXME\b", r"\bXXX\b", r"\blegacy\b", r"\bPR \d")
"""History belongs to git, plans to issues."""

LINES_PER_FILE_MAX = 400
LINES_PER_FUNCTION_MAX = 70
METHODS_PER_CLASS_MAX = 20
PARAMETERS_MAX = 6

TOO_LONG: dict[str, str] = {}
"""Exceptions to the sizes: path relative to the project -> reason."""

CATCH_ALL_ALLOWED = ("runtime/supervise.py", "text/templates.py", "text/library.py")
"""`except Exception` stands only where a process or a user's template is contained, and around
the `tokenizers` library, which raises nothing more particular."""
