"""Resolve `requirements/*.lock` anew from pyproject.toml, and say what they were resolved from.

Run by `make lock`. Each lock begins with a digest of the dependencies it answers, so a test can
tell, without a network, that nobody changed one and forgot the other.
"""

import hashlib
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCKS = {
    "runtime": ["pyproject.toml"],
    "build": ["-"],
    "test": ["--group", "test", "pyproject.toml", "-c", "requirements/runtime.lock"],
    "parity": ["--group", "parity", "pyproject.toml", "-c", "requirements/runtime.lock"],
}


def digest(name: str) -> str:
    """What a lock must answer, as a short hash."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted: list[str] = []
    if name == "build":
        wanted += project["build-system"]["requires"]
    else:
        wanted += project["project"]["dependencies"]
        wanted += project["dependency-groups"].get(name, [])
    return hashlib.sha256("\n".join(sorted(wanted)).encode()).hexdigest()[:16]


def header(name: str) -> str:
    return f"# resolved from pyproject.toml ({digest(name)}) by `make lock`\n"


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for name, arguments in LOCKS.items():
        path = ROOT / "requirements" / f"{name}.lock"
        subprocess.run(
            [
                *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--generate-hashes"),
                *("--no-header", "--no-emit-index-url", "--python-version", "3.11"),
                *arguments,
                *("-o", str(path)),
            ],
            cwd=ROOT,
            input="\n".join(project["build-system"]["requires"]) if name == "build" else None,
            text=True,
            check=True,
        )
        text = "\n".join(line for line in path.read_text().splitlines() if not line.startswith("#"))
        path.write_text(header(name) + text + "\n")


if __name__ == "__main__":
    main()
