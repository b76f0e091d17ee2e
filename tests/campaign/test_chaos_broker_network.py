from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.campaign.chaos.broker_network import BrokerNetwork, node_of
from tests.polling import eventually

NODE, OTHER, THIRD = 1, 2, 3
CLIENT = f"broker-{OTHER}-fetcher-0".encode()
PING = struct.pack(">ihhih", 100, 1, 17, 7, len(CLIENT)) + CLIENT + b"the rest"
ECHO = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    connection, _ = server.accept()
    while data := connection.recv(100):
        connection.sendall(data)
"""


@pytest.fixture
def echo_port() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield int(child.stdout.readline())
        finally:
            child.kill()


@pytest.fixture
def network() -> Iterator[BrokerNetwork]:
    with BrokerNetwork() as opened:
        yield opened


@contextlib.contextmanager
def connected(network: BrokerNetwork, port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", network.forward(NODE, port))) as connection:
        yield connection


def await_echo(connection: socket.socket) -> None:
    """Receive all of the echo."""
    connection.settimeout(30)
    found = b""
    while len(found) < len(PING):
        found += connection.recv(len(PING) - len(found))
    assert found == PING


def is_silent(connection: socket.socket) -> bool:
    """Return whether nothing arrives for a moment."""
    connection.settimeout(0.2)
    try:
        return not connection.recv(1)
    except TimeoutError:
        return True


@pytest.mark.parametrize(
    ("client_id", "node"),
    [("broker-1-fetcher-0", 1), ("raft-client-2", 2), ("3", 3), ("broker-2-txn-marker-sender", 2), ("100", 100)],
)
def test_client_id_names_the_node(client_id: str, node: int) -> None:
    assert node_of(client_id) == node


def test_forwards_both_ways(network: BrokerNetwork, echo_port: int) -> None:
    with connected(network, echo_port) as connection:
        connection.sendall(PING)
        await_echo(connection)
    assert network.bytes_held == 0


def test_partition_holds_bytes_back_until_it_heals(network: BrokerNetwork, echo_port: int) -> None:
    with connected(network, echo_port) as connection:
        connection.sendall(PING)
        await_echo(connection)
        network.partition(OTHER, [NODE])
        connection.sendall(PING)
        eventually(lambda: network.bytes_held == len(PING))
        assert is_silent(connection)
        network.heal(OTHER)
        await_echo(connection)


def test_partition_holds_new_connections_back(network: BrokerNetwork, echo_port: int) -> None:
    network.partition(NODE, [OTHER])
    with connected(network, echo_port) as connection:
        connection.sendall(PING)
        assert is_silent(connection)
        network.heal()
        await_echo(connection)


def test_partition_of_other_nodes_holds_nothing_back(network: BrokerNetwork, echo_port: int) -> None:
    network.partition(THIRD, [NODE])
    network.partition(OTHER, [THIRD])
    with connected(network, echo_port) as connection:
        connection.sendall(PING)
        await_echo(connection)
    assert network.bytes_held == 0


def test_node_that_does_not_run_refuses(network: BrokerNetwork) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with connected(network, port) as connection:
        connection.sendall(PING)
        connection.settimeout(30)
        with contextlib.suppress(ConnectionError):
            assert connection.recv(1) == b""
