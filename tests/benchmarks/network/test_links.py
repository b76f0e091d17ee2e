"""Links of a copier's network: delay, rate, losses and a cut act on the kernel's TCP."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from tests.benchmarks.network.links import Line, Link, Namespace, network

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def connected(namespace: Namespace, link: Link) -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection over the link: the brokers' and the copier's."""
    with socket.create_server((link.near, 0)) as server:
        with namespace.entered():
            far = socket.create_connection(server.getsockname(), timeout=30)
        near, _ = server.accept()
    near.settimeout(30)
    return near, far


def test_a_delay_is_a_round_trip_and_a_cut_holds_bytes_back(tmp_path: Path) -> None:
    with network(tmp_path, [Line(delay_ms=50.0)]) as (namespace, (link,)):
        near, far = connected(namespace, link)
        with near, far:
            began = time.monotonic()
            far.sendall(b"x")
            assert near.recv(1) == b"x"
            near.sendall(b"y")
            assert far.recv(1) == b"y"
            assert time.monotonic() - began >= 0.1
            link.cut()
            far.sendall(b"z")
            near.settimeout(1.0)
            with pytest.raises(TimeoutError):
                near.recv(1)
            link.heal()
            near.settimeout(30)
            assert near.recv(1) == b"z"


def test_a_rate_bounds_and_losses_are_lost(tmp_path: Path) -> None:
    with network(tmp_path, [Line(mbit=8.0, loss=0.02)]) as (namespace, (link,)):
        near, far = connected(namespace, link)
        with near, far:
            began, size = time.monotonic(), 2_000_000
            far.settimeout(60)
            sender = threading.Thread(target=far.sendall, args=(bytes(size),))
            sender.start()
            got = 0
            while got < size:
                got += len(near.recv(1 << 20))
            sender.join()
            # A million bytes a second; the queue holds a tenth of a second of them.
            assert time.monotonic() - began >= size / 1e6 - 0.2
            assert link.counts()[1]["lost"] > 0
