"""The locks answer today's pyproject.toml, pin everything with hashes, and name no host."""

import re

import pytest
from lock import LOCKS, ROOT, header


@pytest.mark.parametrize("name", sorted(LOCKS))
def test_lock_answers_the_present_dependencies(name: str) -> None:
    first = (ROOT / "requirements" / f"{name}.lock").read_text().splitlines()[0] + "\n"
    assert first == header(name), "run `make lock`"


@pytest.mark.parametrize("name", sorted(LOCKS))
def test_lock_pins_by_hash_and_names_no_host(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.lock").read_text()
    assert "://" not in text
    pins = re.findall(r"^[\w.-]+(?:\[[\w,]+\])?==", text, re.MULTILINE)
    entries = re.findall(r"^[^\s#].*$", text, re.MULTILINE)
    assert len(pins) == len(entries) > 0
    assert len(re.findall(r"==.*\\\n    --hash=sha256:", text)) == len(pins)


def test_serving_needs_no_torch() -> None:
    text = (ROOT / "requirements" / "runtime.lock").read_text()
    assert not re.search(r"^(torch|transformers|nvidia\S*)==", text, re.MULTILINE)
