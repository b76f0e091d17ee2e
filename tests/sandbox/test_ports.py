"""Free ports for brokers."""

from __future__ import annotations

import socket

import pytest

from mirror.errors import SandboxError
from mirror.sandbox import ports
from mirror.sandbox.ports import HOST, free_ports


def test_ports_are_different_free_and_not_ephemeral() -> None:
    found = free_ports(20)
    assert len(set(found)) == 20
    assert all(16384 <= port < 32768 for port in found)
    for port in found:
        with socket.create_server((HOST, port)):
            pass


def test_used_port_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, free_ports(1)[0])) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "_FIRST", port)
        monkeypatch.setattr(ports, "_LAST", port)
        with pytest.raises(SandboxError, match=f"no free port from {port} to {port}"):
            free_ports(1)
