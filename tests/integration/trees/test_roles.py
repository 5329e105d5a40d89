"""Roles of a real tree: answers are those of one executor, and changes lose nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from house import House, tree_config, until

from tercet.cli.scale import command as scale
from tercet.cli.status import command as status
from tercet.runtime.config import TreeConfig

LONG = [1 + 7 * at % 190 for at in range(130)]


@pytest.fixture(scope="module")
def roles(cache: Path) -> Iterator[House]:
    house = House(tree_config(cache, prefill=1, decode=1))
    yield house
    house.close()
    assert house.gone()


def serving(house: House) -> dict[str, int]:
    """Executors that are connected, by the role that they serve in."""
    found: dict[str, int] = {}
    for one in house.client.get("/tercet/status").json()["executors"]:
        if one["serves_as"] and one["serves_as"] == one["role"] and one.get("connected"):
            found[one["role"]] = found.get(one["role"], 0) + 1
    return found


def put(house: House, **counts: int) -> None:
    answer = house.client.put("/tercet/roles", json=counts)
    assert answer.status_code == 200, answer.text


def test_two_roles_answer_as_one_executor_does(
    roles: House, house: House, build: Callable[[TreeConfig], House]
) -> None:
    until(lambda: serving(roles) == {"prefill": 1, "decode": 1}, "both serve")
    expected = house.complete(prompt=LONG)
    assert [roles.complete(prompt=LONG) for _ in range(3)] == [expected] * 3


def test_roles_change_while_streams_run(roles: House) -> None:
    expected = roles.complete(prompt=LONG, max_tokens=200)
    before = roles.executors()
    streams = [roles.stream(prompt=LONG, max_tokens=200).after(1) for _ in range(4)]
    put(roles, prefill=0, decode=0, colocated=2)
    more = [roles.stream(prompt=LONG, max_tokens=200) for _ in range(4)]
    until(lambda: serving(roles) == {"colocated": 2}, "both are colocated")
    put(roles, prefill=1, decode=1, colocated=0)
    until(lambda: serving(roles) == {"prefill": 1, "decode": 1}, "and back")
    assert [stream.finish() for stream in (*streams, *more)] == [expected] * 8
    assert roles.executors() == before, "nobody was started or stopped"


def test_more_and_fewer_while_streams_run(roles: House) -> None:
    expected = roles.complete(prompt=LONG, max_tokens=200)
    streams = [roles.stream(prompt=LONG, max_tokens=200).after(1) for _ in range(4)]
    put(roles, decode=2)
    until(lambda: serving(roles) == {"prefill": 1, "decode": 2}, "one more decodes")
    streams += [roles.stream(prompt=LONG, max_tokens=200).after(1) for _ in range(4)]
    put(roles, decode=1)
    until(lambda: len(roles.executors()) == 2, "one is stopped")
    assert [stream.finish() for stream in streams] == [expected] * 8


def test_a_new_front_goes_on_with_the_roles_that_were_set(roles: House) -> None:
    put(roles, prefill=0, decode=0, colocated=2)
    until(lambda: serving(roles) == {"colocated": 2}, "both are colocated")
    before = roles.executors()
    roles.kill(roles.pid("tercet: front"))
    until(roles.ready, "a new front")
    until(lambda: serving(roles) == {"colocated": 2}, "as before")
    assert roles.executors() == before
    put(roles, prefill=1, decode=1, colocated=0)
    until(lambda: serving(roles) == {"prefill": 1, "decode": 1}, "and back")


def test_the_command_line_shows_and_sets(roles: House) -> None:
    url = ["--url", roles.tree.url]
    shown = CliRunner().invoke(status, url).output
    assert "wanted of tiny: prefill 1, decode 1" in shown
    assert CliRunner().invoke(scale, ["prefill=1", "decode=1", *url]).output == (
        "tiny: prefill 1, decode 1, colocated 0\n"
    )
    wrong = CliRunner().invoke(scale, ["prefill=0", "decode=0", *url])
    assert "1 to 64 of all roles together" in str(wrong.exception)
