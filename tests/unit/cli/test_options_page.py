"""docs/operations.md says of flags and keys what the code says."""

import re
from pathlib import Path

from tercet.cli.compose import FLAGS, VLLM_ALWAYS_ON, VLLM_GIVEN, VLLM_SPELLINGS
from tercet.cli.settings import keys
from tercet.runtime.config import TreeConfig

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")


def test_every_flag_has_its_key() -> None:
    told = dict(re.findall(r"^\| `--([\w-]+)` \| `([\w.]+)` \|$", PAGE, re.MULTILINE))
    assert told == {flag: key for flag, (key, _) in FLAGS.items()}


def test_every_accepted_spelling_is_named() -> None:
    for name in (*VLLM_SPELLINGS, *VLLM_GIVEN, *VLLM_ALWAYS_ON):
        assert f"`--{name}`" in PAGE


def test_every_key_has_its_default() -> None:
    row = r"^\| `([\w.]+)` \| (none|-|`[^`]*`) \| [^|]+ \|$"
    told = dict(re.findall(row, PAGE.partition("## Every key")[2], re.MULTILINE))
    known = keys(TreeConfig)
    assert told.keys() == known.keys()
    for name, shown in told.items():
        default = known[name].default
        if shown == "none":
            assert default in (None, ())
        elif shown != "-":
            assert shown == f"`{default}`", name
