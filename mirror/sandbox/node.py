"""A node of a sandbox cluster: its settings, its folder, and its Java command lines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mirror.errors import SandboxError
from mirror.sandbox.ports import HOST
from mirror.sandbox.process import Process

CLIENT_LISTENER: Final = "PLAINTEXT"
CONTROLLER_LISTENER: Final = "CONTROLLER"
CONTROLLER_ID: Final = 100
"""The node id of a controller with its own process. Brokers have the ids from 1."""
_ZOOKEEPER_TICK_MS: Final = 500
"""It limits sessions to 20 ticks. A broker's session is to end soon after its death."""

_DEDUPE_BUFFER_BYTES: Final = str(16 << 20)
"""The broker allocates the default, 128 MB, from its heap at the start."""


@dataclass(slots=True)
class Node:
    """A broker, a controller, or both in one process. A cluster with ZooKeeper has that in place of a controller."""

    node_id: int
    broker: bool
    controller: bool
    folder: Path
    ports: dict[str, int]
    """By the listener's name."""
    process: Process | None = None
    log_start: int = 0
    """The position in the log at which the present process begins."""
    address: str = HOST
    """Where the further listeners listen."""

    def place(self, listener: str) -> str:
        """Return ``host:port`` of a listener."""
        own = listener in (CLIENT_LISTENER, CONTROLLER_LISTENER)
        return f"{HOST if own else self.address}:{self.ports[listener]}"

    @property
    def settings(self) -> Path:
        return self.folder / "server.properties"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def alive(self) -> bool:
        return self.process is not None and self.process.alive()

    def log_text(self) -> str:
        """Return the log of the present or last process."""
        return self.log.read_bytes()[self.log_start :].decode(errors="replace")

    def log_tail(self) -> str:
        """Return the end of the log, for the text of an error."""
        return excerpt(self.log_text())


def excerpt(output: str, lines: int = 10) -> str:
    """Return the first error line and the last lines of a Java program's output, without stack traces."""
    relevant = [line for line in output.splitlines() if line.strip() and not line.startswith("\t")]
    errors = [line for line in relevant[:-lines] if re.search(r"\b(ERROR|FATAL|Error|Exception)\b", line)]
    return "\n".join(errors[:1] + relevant[-lines:])


def read_node(folder: Path, processes: Mapping[int, Process]) -> Node:
    """Return the node of a KRaft cluster that :func:`settings` has described in ``folder``. Raises SandboxError."""
    try:
        lines = (folder / "server.properties").read_text(encoding="ascii").splitlines()
        values = dict(line.split("=", 1) for line in lines)
        roles, node_id = values["process.roles"].split(","), int(values["node.id"])
        addresses = (address.split("://") for address in values["listeners"].split(","))
        ports = {name: int(place.rpartition(":")[2]) for name, place in addresses}
    except (OSError, ValueError, LookupError) as error:
        raise SandboxError(f"{folder / 'server.properties'} cannot be read: {error}") from error
    return Node(node_id, "broker" in roles, "controller" in roles, folder, ports, processes.get(node_id))


def settings(
    node: Node, *, brokers: int, controller: Node, listeners: Mapping[str, str], properties: Mapping[str, str]
) -> dict[str, str]:
    """Return the ``server.properties`` of a node for a small, fast cluster; ``properties`` override them.

    ``listeners`` maps the names of further listeners to their security protocols.
    """
    roles = [name for name, enabled in (("broker", node.broker), ("controller", node.controller)) if enabled]
    addresses = [f"{name}://{node.place(name)}" for name in node.ports]
    protocols = {CLIENT_LISTENER: "PLAINTEXT", CONTROLLER_LISTENER: "PLAINTEXT", **listeners}
    common = {
        "process.roles": ",".join(roles),
        "node.id": str(node.node_id),
        "controller.quorum.voters": f"{controller.node_id}@{HOST}:{controller.ports[CONTROLLER_LISTENER]}",
        "controller.listener.names": CONTROLLER_LISTENER,
        "listeners": ",".join(addresses),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "log.dirs": str(node.data),
        "log.cleaner.dedupe.buffer.size": _DEDUPE_BUFFER_BYTES,
        # Every 0.5 s by default: an idle broker takes 1.3 instead of 2.7 % of a CPU without most of these records.
        "metadata.max.idle.interval.ms": "5000",
    }
    if node.broker:
        advertised = [f"{name}://{node.place(name)}" for name in node.ports if name != CONTROLLER_LISTENER]
        common["advertised.listeners"] = ",".join(advertised)
        common["inter.broker.listener.name"] = CLIENT_LISTENER
        common |= _broker_defaults(brokers)
    return common | dict(properties)


def _broker_defaults(brokers: int) -> dict[str, str]:
    replicas = min(3, brokers)
    in_sync = str(min(2, replicas))
    return {
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": in_sync,
        # The default is 50 each, all created at the first use. Six still spread evenly over two or three brokers.
        "offsets.topic.num.partitions": "6",
        "transaction.state.log.num.partitions": "6",
        "share.coordinator.state.topic.num.partitions": "6",
        "group.initial.rebalance.delay.ms": "0",
        # The mirror creates its topics itself; automatic creation would hide that it did not.
        "auto.create.topics.enable": "false",
    }


def render(properties: Mapping[str, str]) -> str:
    """Return Java properties: backslashes and line ends are escaped, characters beyond ASCII are UTF-16 escapes."""
    lines = []
    for key, value in properties.items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
        lines.append(f"{key}={''.join(_ascii(character) for character in escaped)}\n")
    return "".join(lines)


def _ascii(character: str) -> str:
    units = character.encode("utf-16-be").hex(" ", 2).split()
    return character if character.isascii() else "".join(f"\\u{unit}" for unit in units)


def zookeeper_settings(node: Node) -> dict[str, str]:
    """Return the settings of the ZooKeeper server of a cluster."""
    return {
        "dataDir": str(node.data),
        "clientPort": str(node.ports[CONTROLLER_LISTENER]),
        "clientPortAddress": HOST,
        "tickTime": str(_ZOOKEEPER_TICK_MS),
        "maxClientCnxns": "0",
        "admin.enableServer": "false",  # it would open port 8080, and needs Jetty
    }


def zookeeper_broker_settings(
    node: Node, *, brokers: int, zookeeper: Node, listeners: Mapping[str, str], properties: Mapping[str, str]
) -> dict[str, str]:
    """Return what :func:`settings` does for a broker that keeps its metadata in ZooKeeper."""
    addresses = ",".join(f"{name}://{node.place(name)}" for name in node.ports)
    protocols = {CLIENT_LISTENER: "PLAINTEXT", **listeners}
    common = {
        "broker.id": str(node.node_id),
        "zookeeper.connect": f"{HOST}:{zookeeper.ports[CONTROLLER_LISTENER]}",
        "zookeeper.session.timeout.ms": "6000",
        "zookeeper.connection.timeout.ms": "60000",  # both start at the same time
        "listeners": addresses,
        "advertised.listeners": addresses,
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": CLIENT_LISTENER,
        "log.dirs": str(node.data),
        "log.cleaner.dedupe.buffer.size": _DEDUPE_BUFFER_BYTES,
    }
    return common | _broker_defaults(brokers) | dict(properties)


def format_command(
    java: Path, options: Sequence[str], class_path: str, node: Node, cluster_id: str, features: Mapping[str, int]
) -> list[str | Path]:
    """Return the command that writes the cluster's id and metadata into the node's folder before the first start.

    ``features`` override the levels of the release (KIP-1022). ``options`` are those of :func:`run_command`.
    """
    fast_start = "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"
    tool: list[str | Path] = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", node.settings]
    levels = [word for name, level in features.items() for word in ("--feature", f"{name}={level}")]
    return [java, *options, *fast_start, "-cp", class_path, *tool, *levels]


def run_command(
    java: Path, options: Sequence[str], class_path: str, node: Node, *, zookeeper: bool = False
) -> list[str | Path]:
    """Return the command that runs the node, with the JVM's ``options``.

    With ``zookeeper``, a node that is no broker is a ZooKeeper server.
    """
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain" if zookeeper and not node.broker else "kafka.Kafka"
    # Full compilation and G1, as on a real broker: a start without them is 0.3 s faster, but distorts measurements.
    return [java, *options, "-XX:+UseG1GC", "-cp", class_path, main, node.settings]
