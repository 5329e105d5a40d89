"""docs/api.md says of fields, codes and limits what the code says."""

import re
from pathlib import Path

import pytest

from tercet.api import errors, outcomes
from tercet.api.app import _PROBES
from tercet.api.config import ApiConfig
from tercet.api.fields import CHAT, COMPLETIONS, DETOKENIZE, TOKENIZE

SOURCE = Path(errors.__file__).parent
PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
FIELD = re.compile(
    r"^\| `(\w+)` \| (served|ignored|refused|-) \| (served|ignored|refused|-) \|", re.MULTILINE
)
CODE = re.compile(r"^\| (\d{3}) \| `(\w+)` \|", re.MULTILINE)


def section(title):
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def listed(column, word):
    return {row[0] for row in FIELD.findall(PAGE) if row[column] == word}


@pytest.mark.parametrize(("column", "table"), [(1, COMPLETIONS), (2, CHAT)])
def test_every_field_is_in_its_list(column, table):
    assert listed(column, "served") == table.served
    assert listed(column, "ignored") == table.idle.keys()
    assert listed(column, "refused") == table.refused.keys()


def test_no_field_has_two_rows():
    names = [row[0] for row in FIELD.findall(PAGE)]
    assert len(names) == len(set(names))


def test_a_value_that_passes_is_given():
    for table, column in ((COMPLETIONS, 2), (CHAT, 3)):
        for name, neutral in table.refused.items():
            row = re.search(rf"^\| `{name}` \|.*$", PAGE, re.MULTILINE).group()
            assert ("pass" in row) == bool(neutral), (name, column)


def test_the_small_endpoints_are_told_whole():
    text = " ".join(section("Fields").split())
    served, _, refused = text.partition("it refuses")
    told = set(re.findall(r"`(\w+)`", served.partition("`/tokenize` serves")[2]))
    assert told == TOKENIZE.served
    assert TOKENIZE.refused.keys() == set(
        re.findall(r"`(\w+)`", refused.partition("`/detokenize`")[0])
    )
    last = refused.partition("`/detokenize` serves")[2].partition(".")[0]
    assert set(re.findall(r"`(\w+)`", last)) == DETOKENIZE.served


def test_every_code_has_its_status():
    told = {code: int(status) for status, code in CODE.findall(PAGE)}
    for code, status in errors.STATUS_OF_CODE.items():
        assert told[code] == status
    for code, (status, _) in outcomes.OUTCOMES.items():
        assert told[str(code)] == status


def test_no_code_of_the_front_is_missing():
    told = {code for _, code in CODE.findall(PAGE)}
    text = SOURCE.parent / "text"
    files = [*SOURCE.glob("*.py"), text / "chat.py", text / "templates.py", text / "codec.py"]
    raised = {
        code for file in files for code in re.findall(r'code="(\w+)"', file.read_text("utf-8"))
    }
    assert raised | {"invalid_value"} <= told
    assert told - raised - outcomes.OUTCOMES.keys() == {"invalid_value"}


def test_every_probe_is_named():
    for paths in _PROBES.values():
        for path in paths:
            assert f"`{path}`" in PAGE or f"GET {path}`" in PAGE


def test_limits_are_the_defaults():
    limits = " ".join(section("Limits").split())
    config = ApiConfig()
    for value in (
        f"{config.requests_max} open requests",
        f"{config.tasks_max} completions",
        f"`n` up to {config.choices_max}",
        f"{config.body_bytes_max >> 20} MiB",
        f"{config.json_depth_max} levels",
        f"{config.json_parts_max:,} lists and objects",
        f"{config.tokenize_chars_max:,} characters to tokenize",
        f"{config.detokenize_max:,} ids to detokenize",
        f"{config.prompt_logprobs_max:,} log-probabilities",
        f"{config.stop_strings_max} stop strings of {config.stop_string_chars_max} characters",
        f"{config.stop_token_ids_max} stop ids",
        f"{config.logit_bias_max} biases",
    ):
        assert value in limits
    assert f"Retry-After: {config.retry_after_s}" in PAGE
    assert f"{config.pieces_max:,} pieces" in " ".join(PAGE.split())
