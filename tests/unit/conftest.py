"""Unit tests are pure: no sleeping, processes or connections, but where those are the subject."""

import socket
import subprocess
import time
from typing import Any, NoReturn

import pytest

EDGES = ("runtime", "models")
"""Folders whose subjects are sockets, processes and files."""


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("a unit test reaches for the outside world: pass it in, or move the test")


@pytest.fixture(autouse=True)
def _no_outside_world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.path.parent.name in EDGES:
        return
    monkeypatch.setattr(time, "sleep", _refuse)
    monkeypatch.setattr(subprocess, "Popen", _refuse)
    monkeypatch.setattr(socket.socket, "connect", _refuse)
    monkeypatch.setattr(socket.socket, "bind", _refuse)
