"""One node of a sandbox cluster: its settings, its folder, its Java command lines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mirror.sandbox.ports import HOST
from mirror.sandbox.process import Process

CLIENT_LISTENER: Final = "PLAINTEXT"
CONTROLLER_LISTENER: Final = "CONTROLLER"
CONTROLLER_ID: Final = 100
"""The node id of the controller where it is a process of its own; brokers count from 1."""
_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")


@dataclass(slots=True)
class Node:
    """A broker, a controller, or both in one process.

    ``ports`` maps a listener's name to its port; ``log_start`` is where in the log the present process begins.
    """

    node_id: int
    broker: bool
    controller: bool
    folder: Path
    ports: dict[str, int]
    process: Process | None = None
    log_start: int = 0

    @property
    def settings(self) -> Path:
        return self.folder / "server.properties"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def alive(self) -> bool:
        return self.process is not None and self.process.alive()

    def log_text(self) -> str:
        """What the present (or last) process has logged."""
        return self.log.read_bytes()[self.log_start :].decode(errors="replace")

    def log_tail(self) -> str:
        """The end of the log, for an error's text."""
        return excerpt(self.log_text())


def excerpt(said: str, lines: int = 10) -> str:
    """From a Java program's output: its first line about an error, then its last lines, without stack traces."""
    told = [line for line in said.splitlines() if line.strip() and not line.startswith("\t")]
    errors = [line for line in told[:-lines] if re.search(r"\b(ERROR|FATAL|Error|Exception)\b", line)]
    return "\n".join(errors[:1] + told[-lines:])


def settings(
    node: Node, *, brokers: int, controller: Node, listeners: Mapping[str, str], properties: Mapping[str, str]
) -> dict[str, str]:
    """The ``server.properties`` of a node: what a small, fast cluster needs, then ``properties``, which win.

    ``listeners`` maps the names of further listeners to their security protocols.
    """
    roles = [name for name, has in (("broker", node.broker), ("controller", node.controller)) if has]
    addresses = [f"{name}://{HOST}:{port}" for name, port in node.ports.items()]
    protocols = {CLIENT_LISTENER: "PLAINTEXT", CONTROLLER_LISTENER: "PLAINTEXT", **listeners}
    common = {
        "process.roles": ",".join(roles),
        "node.id": str(node.node_id),
        "controller.quorum.voters": f"{controller.node_id}@{HOST}:{controller.ports[CONTROLLER_LISTENER]}",
        "controller.listener.names": CONTROLLER_LISTENER,
        "listeners": ",".join(addresses),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "log.dirs": str(node.folder / "data"),
        # The default, 128 MB, is taken from the heap at the start.
        "log.cleaner.dedupe.buffer.size": str(16 << 20),
    }
    if node.broker:
        advertised = [f"{name}://{HOST}:{port}" for name, port in node.ports.items() if name != CONTROLLER_LISTENER]
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
        # 50 each by default, all made at the first use; 6 still spread evenly over two or three brokers.
        "offsets.topic.num.partitions": "6",
        "transaction.state.log.num.partitions": "6",
        "share.coordinator.state.topic.num.partitions": "6",
        "group.initial.rebalance.delay.ms": "0",
        # A mirror makes its topics itself; one made by accident would hide that it did not.
        "auto.create.topics.enable": "false",
    }


def render(properties: Mapping[str, str]) -> str:
    """Properties in Java's file format: backslashes and line ends escaped, all beyond ASCII as UTF-16 escapes."""
    lines = []
    for key, value in properties.items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
        lines.append(f"{key}={''.join(_ascii(character) for character in escaped)}\n")
    return "".join(lines)


def _ascii(character: str) -> str:
    units = character.encode("utf-16-be").hex(" ", 2).split()
    return character if character.isascii() else "".join(f"\\u{unit}" for unit in units)


def format_command(
    java: Path, class_path: str, node: Node, cluster_id: str, features: Mapping[str, int]
) -> list[str | Path]:
    """Writes the cluster's id and first metadata into the node's folder; must run once before the first start.

    ``features`` win over the levels that the release would choose (KIP-1022).
    """
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    tool: list[str | Path] = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", node.settings]
    levels = [word for name, level in features.items() for word in ("--feature", f"{name}={level}")]
    return [java, *quick, *_logging(), "-cp", class_path, *tool, *levels]


def run_command(java: Path, class_path: str, node: Node, heap: Sequence[str]) -> list[str | Path]:
    """Runs the node, with JVM options such as ``-Xmx640m`` in ``heap``."""
    # Full compilation and G1, as on a real broker: the faster start without is worth 0.3 s, measurements more.
    return [java, *heap, "-XX:+UseG1GC", *_logging(), "-cp", class_path, "kafka.Kafka", node.settings]


def _logging() -> list[str]:
    return [f"-Dlog4j2.configurationFile={_LOG_SETTINGS}"]
