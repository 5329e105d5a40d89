"""Ports that are chosen before whoever listens there starts."""

import contextlib
import socket
from pathlib import Path

import pytest

from tercet.base.errors import Invalid
from tercet.runtime import endpoints
from tercet.runtime.endpoints import free_ports

HOST = "127.0.0.1"


def test_they_are_free_in_a_row_and_never_given_to_who_connects(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    low, high = 12_000, 64_000
    path = tmp_path / "range"
    path.write_text(f"{low}\t{high}\n")
    monkeypatch.setattr(endpoints, "_EPHEMERAL", path)
    for _ in range(20):
        port = free_ports(HOST, 3)
        with contextlib.ExitStack() as held:
            for one in (port, port + 1, port + 2):
                assert not low <= one <= high
                held.enter_context(socket.create_server((HOST, one)))


@pytest.mark.parametrize("said", ["1024 65535", "1024\t65535\n", "what?"])
def test_where_the_kernel_gives_all_ports_one_of_them_must_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str
) -> None:
    path = tmp_path / "range"
    path.write_text(said)
    monkeypatch.setattr(endpoints, "_EPHEMERAL", path)
    port = free_ports(HOST, 2)
    with socket.create_server((HOST, port)), socket.create_server((HOST, port + 1)):
        pass


def test_the_ones_behind_it_count(monkeypatch: pytest.MonkeyPatch) -> None:
    first = free_ports(HOST, 4)
    monkeypatch.setattr(endpoints, "_FIRST_PORT", first)
    monkeypatch.setattr(endpoints, "_PORTS_END", first + 4)
    with socket.create_server((HOST, first + 1)):
        assert free_ports(HOST, 2) == first + 2
        with pytest.raises(Invalid, match="No 3 free ports in a row on 127"):
            free_ports(HOST, 3)
