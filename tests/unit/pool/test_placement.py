"""Homes of keys: every host can tell, and a host that comes or goes moves its share alone."""

from hashlib import blake2b

from hypothesis import given
from hypothesis import strategies as st

from tercet.pool.placement import Placement, ranked

NAMES = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=8, unique=True)
KEY = st.binary(min_size=16, max_size=16)


def keys(count: int) -> list[bytes]:
    return [blake2b(b"%d" % number, digest_size=16).digest() for number in range(count)]


@given(NAMES, KEY)
def test_the_order_of_the_list_is_nothing(hosts: list[str], key: bytes) -> None:
    assert ranked(key, hosts) == ranked(key, list(reversed(hosts)))
    assert Placement(hosts).home(key) == ranked(key, hosts)[0]
    assert sorted(ranked(key, hosts)) == sorted(hosts)


@given(NAMES, KEY, st.text(min_size=1, max_size=8))
def test_a_host_that_joins_takes_its_own_keys_alone(hosts: list[str], key: bytes, new: str) -> None:
    before, after = Placement(hosts).home(key), Placement([*hosts, new]).home(key)
    assert after in (before, new)


@given(NAMES, KEY)
def test_a_host_that_leaves_gives_up_its_own_keys_alone(hosts: list[str], key: bytes) -> None:
    first, *others = ranked(key, hosts)
    for gone in others:
        assert Placement([host for host in hosts if host != gone]).home(key) == first
    if others:
        assert Placement(others).home(key) == others[0]


def test_shares_are_even() -> None:
    placement = Placement(f"host-{number}" for number in range(8))
    counts = dict.fromkeys(placement.hosts, 0)
    for key in keys(16_000):
        counts[placement.home(key)] += 1
    assert min(counts.values()) > 1_800
    assert max(counts.values()) < 2_200


def test_homes_do_not_change_with_versions() -> None:
    """Another process, or the next release, must say the same: data lies where this says."""
    placement = Placement(("a", "b", "c"))
    assert "".join(placement.home(key) for key in keys(24)) == HOMES


def test_without_hosts_there_is_no_home() -> None:
    assert Placement().home(bytes(16)) == ""
    assert Placement().ranked(bytes(16)) == ()


HOMES = "bcccabccabcacbbaccabcabb"
