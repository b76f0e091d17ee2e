"""The network between the brokers of a cluster and their controller, which can be partitioned.

Every node's listener for other nodes is behind a TCP forwarder. The client id of a connection's first request says
which node has opened it. While two nodes are partitioned, the bytes between them
are held back, as lost packets are that TCP sends again after the partition: connections neither fail nor progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from mirror.sandbox.cluster import Cluster
from mirror.sandbox.node import CONTROLLER_ID, CONTROLLER_LISTENER, Node
from mirror.sandbox.ports import HOST

LISTENER: Final = "BROKERS"
"""The listener that brokers use among themselves: a further listener of the cluster."""
_CHUNK: Final = 1 << 16
_CALL_S: Final = 20.0
_CLIENT_ID_FROM: Final = 14
"""Size, API key, version and correlation id of a request come before it, and its own size."""


@dataclass(eq=False, slots=True)
class _Connection:
    """A connection to ``node``, opened by the node ``opened_by``."""

    node: int
    opened_by: int
    writers: list[asyncio.StreamWriter]
    passing: asyncio.Event = field(default_factory=asyncio.Event)

    def between(self, node: int, others: Collection[int]) -> bool:
        """Whether this connects ``node`` with one of ``others``."""
        return (self.node == node and self.opened_by in others) or (self.opened_by == node and self.node in others)


@dataclass(slots=True)
class _Forwarder:
    port: int
    target: int
    server: asyncio.Server


class BrokerNetwork:
    """The forwarders of one cluster. A context manager.

    ``bytes_held`` counts the bytes that partitions have held back so far.
    """

    def __init__(self) -> None:
        self.bytes_held = 0
        self._forwarders = dict[int, _Forwarder]()
        self._connections = set[_Connection]()
        self._partitioned = dict[int, frozenset[int]]()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker-network", daemon=True)

    def forward(self, node: int, port: int) -> int:
        """Return the port at which ``node`` is reached, whose own ``port`` may be another one than before."""
        if node not in self._forwarders:
            self._forwarders[node] = self._call(self._listen(node, port))
        self._forwarders[node].target = port
        return self._forwarders[node].port

    def partition(self, node: int, others: Iterable[int]) -> None:
        """Hold back everything between ``node`` and ``others``."""
        self._call(self._partition(node, frozenset(others)))

    def heal(self, node: int | None = None) -> None:
        """End the partition of ``node``, or all of them: what was held back arrives now."""
        self._call(self._heal(node))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_S)
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_S)

    # --- in the loop's thread

    async def _listen(self, node: int, port: int) -> _Forwarder:
        server = await asyncio.start_server(lambda reader, writer: self._serve(node, reader, writer), HOST, 0)
        return _Forwarder(server.sockets[0].getsockname()[1], port, server)

    async def _partition(self, node: int, others: frozenset[int]) -> None:
        self._partitioned[node] = others
        self._update(self._connections)

    async def _heal(self, node: int | None) -> None:
        for healed in list(self._partitioned) if node is None else [node]:
            self._partitioned.pop(healed, None)
        self._update(self._connections)

    def _update(self, connections: Iterable[_Connection]) -> None:
        """Hold back or release ``connections``, as the partitions require."""
        for connection in connections:
            if any(connection.between(node, others) for node, others in self._partitioned.items()):
                connection.passing.clear()
            else:
                connection.passing.set()

    async def _close(self) -> None:
        for forwarder in self._forwarders.values():
            forwarder.server.close()
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(node, 0, [writer])
        self._connections.add(connection)
        try:
            first = await reader.readexactly(_CLIENT_ID_FROM)
            first += await reader.readexactly(int.from_bytes(first[-2:]))
            connection.opened_by = node_of(first[_CLIENT_ID_FROM:].decode())
            self._update([connection])
            if not connection.passing.is_set():
                self.bytes_held += len(first)
                await connection.passing.wait()
            node_reader, node_writer = await asyncio.open_connection(HOST, self._forwarders[node].target)
            connection.writers.append(node_writer)
            node_writer.write(first)
            pumps = [
                asyncio.create_task(self._pump(connection, reader, node_writer)),
                asyncio.create_task(self._pump(connection, node_reader, writer)),
            ]
            _, pending = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pending:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # The node does not run, or the network is being closed.
        finally:
            self._connections.discard(connection)
            for end in connection.writers:
                with contextlib.suppress(OSError, RuntimeError):
                    end.close()

    async def _pump(self, connection: _Connection, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(_CHUNK):
            if not connection.passing.is_set():
                self.bytes_held += len(data)
                await connection.passing.wait()
            sink.write(data)
            await sink.drain()
        await connection.passing.wait()  # The end of a connection is lost, too.


def node_of(client_id: str) -> int:
    """Return the id of the node that has a client with this id, such as ``broker-1-fetcher-0`` or ``raft-client-2``."""
    found = re.search(r"(?:^|-)(\d+)(?:-|$)", client_id)
    assert found is not None, f"no node in the client id {client_id}"
    return int(found[1])


class NetworkedCluster(Cluster):
    """A sandbox cluster whose nodes reach one another through a :class:`BrokerNetwork`.

    Its ``listeners`` have to contain :data:`LISTENER`.
    """

    def __init__(self, network: BrokerNetwork, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.network: Final = network

    def _launch(self, node: Node) -> None:
        """Start a node that advertises its forwarder's port instead of its own."""
        lines = dict(line.split("=", 1) for line in node.settings.read_text(encoding="ascii").splitlines())
        controller = next(found for found in self._nodes if found.node_id == CONTROLLER_ID)
        to_controller = self.network.forward(CONTROLLER_ID, controller.ports[CONTROLLER_LISTENER])
        if node.broker:
            own = node.ports[LISTENER]
            port = self.network.forward(node.node_id, own)
            moved = {f"{LISTENER}://{HOST}:{own}": f"{LISTENER}://{HOST}:{port}"}
            advertised = lines["advertised.listeners"].split(",")
            lines["advertised.listeners"] = ",".join(moved.get(listener, listener) for listener in advertised)
            lines["inter.broker.listener.name"] = LISTENER
            lines["controller.quorum.voters"] = f"{CONTROLLER_ID}@{HOST}:{to_controller}"
        else:
            # Brokers learn from the controller's answers where it is.
            lines["advertised.listeners"] = f"{CONTROLLER_LISTENER}://{HOST}:{to_controller}"
        text = "".join(f"{key}={value}\n" for key, value in lines.items())
        node.settings.write_text(text, encoding="ascii")
        super()._launch(node)
