"""docs/api.md names what the tables hold, so that neither can drift."""

import re
from pathlib import Path

from tercet.api.errors import OUTCOMES, STATUS_OF_CODE
from tercet.api.fields import CHAT, COMPLETIONS

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text()


def names(begin, end):
    part = PAGE[PAGE.index(begin) : PAGE.index(end)]
    return set(re.findall(r"`([a-z_]+)[`:]", part))


def test_the_page_has_every_field_in_its_list():
    served = names("**Served by both", "**Accepted without")
    served -= {"include_usage", "continuous_usage_stats"}
    assert served == COMPLETIONS.served | CHAT.served
    idle = names("**Accepted without", "**Refused by name")
    assert idle == COMPLETIONS.idle.keys() | CHAT.idle.keys() | {"store"}
    refused = names("**Refused by name", "## Worth knowing")
    assert refused == COMPLETIONS.refused.keys() | CHAT.refused.keys()


def test_the_page_has_every_status():
    codes = set(re.findall(r"`([a-z_]+)`", PAGE[PAGE.index("## Statuses") :]))
    assert STATUS_OF_CODE.keys() <= codes
    assert {str(code) for code in OUTCOMES} <= codes
