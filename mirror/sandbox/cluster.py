"""A real Kafka cluster on this machine, for tests, the demo and trying things out."""

from __future__ import annotations

import json
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from mirror.errors import SandboxError
from mirror.sandbox import formatting, process
from mirror.sandbox.distribution import LATEST, Distribution
from mirror.sandbox.fetch import class_path
from mirror.sandbox.folders import remove_folder
from mirror.sandbox.java import Java, find_java
from mirror.sandbox.node import (
    CLIENT_LISTENER,
    CONTROLLER_ID,
    CONTROLLER_LISTENER,
    Node,
    read_node,
    render,
    run_command,
    settings,
    zookeeper_broker_settings,
    zookeeper_settings,
)
from mirror.sandbox.ports import HOST, free_ports
from mirror.sandbox.probe import alive_brokers

RECORD_NAME: Final = "cluster.json"
"""The file in the cluster's folder that lists its processes, for later commands (:mod:`mirror.sandbox.pair`)."""
HEAP: Final = ("-Xms256m", "-Xmx640m")
_START_TIMEOUT_S: Final = 90.0
_STOP_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.05
_PORT_ATTEMPTS: Final = 3


class Cluster:
    """N real brokers (ids 1 to N) on free ports of 127.0.0.1, with their data in a folder of their own.

    A single broker is its own controller. Several brokers have their controller in another process, so that any broker
    can be killed or paused without an election of a controller. ``distribution`` is the release that they run. One
    with ``zookeeper`` has a ZooKeeper server in place of a controller, always in another process.

    ``directory`` (default: a new temporary folder) must be new or empty; :meth:`stop` deletes it. ``properties`` are
    broker settings that override the sandbox's own. ``listeners`` maps the names of further listeners to their security
    protocols (``{"SECURE": "SASL_PLAINTEXT"}``); ``bootstrap("SECURE")`` returns their addresses, which are on
    ``address``, so that other hosts reach them if that is the address of a network. ``features`` are
    initial feature levels (KIP-1022: ``{"transaction.version": 1}``) that override those of the release. The brokers
    die with the process that created them, even if it is killed (Linux), unless ``outlives_owner``.

    Not thread-safe. As a context manager, it starts on entry and stops on exit.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        distribution: Distribution = LATEST,
        directory: Path | None = None,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        address: str = HOST,
        features: Mapping[str, int] | None = None,
        heap: tuple[str, ...] = HEAP,
        outlives_owner: bool = False,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        if brokers < 1:
            raise SandboxError(f"a cluster cannot have {brokers} brokers: give 1 or more")
        if features and distribution.zookeeper:
            raise SandboxError("features are given when a KRaft cluster is formatted: this one has ZooKeeper")
        self._brokers = brokers
        self._distribution = distribution
        self._wanted_directory = directory
        self._properties = dict(properties or {})
        self._listeners = dict(listeners or {})
        self._address = address
        self._features = dict(features or {})
        self._options = (*heap, *distribution.java_options)
        self._outlives_owner = outlives_owner
        self._on_progress = on_progress
        self._nodes: list[Node] = []
        self._directory: Path | None = None
        self._java: Java | None = None
        self._class_path = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every broker, joined by commas."""
        return self.bootstrap(CLIENT_LISTENER)

    def bootstrap(self, listener: str) -> str:
        """Return the same for another ``listener`` of the brokers."""
        return ",".join(node.place(listener) for node in self._nodes if node.broker)

    @property
    def zookeeper(self) -> str:
        """``host:port`` of the ZooKeeper server. SandboxError if none runs."""
        for node in self._nodes:
            if self._distribution.zookeeper and not node.broker:
                return f"{HOST}:{node.ports[CONTROLLER_LISTENER]}"
        raise SandboxError("the cluster has no ZooKeeper, or does not run")

    @property
    def pids(self) -> dict[int, int]:
        """Broker id -> process id of the brokers that run; a paused broker runs."""
        return {node.node_id: node.process.pid for node in self._nodes if node.broker and node.process and node.alive()}

    @property
    def directory(self) -> Path:
        """The cluster's folder, with a folder for each node: its data, ``server.properties`` and ``server.log``."""
        if self._directory is None:
            raise SandboxError("the cluster does not run: start it first")
        return self._directory

    def start(self) -> None:
        """Start all nodes and wait until every broker sees every other broker.

        Raises SandboxError if there is no Java, the download fails, or a broker dies or is not ready within 90 s. Then
        no process is left running.
        """
        if self._nodes:
            raise SandboxError("the cluster runs already: stop it first")
        self._directory = self._new_directory()
        try:
            self._java = find_java()
            self._class_path = class_path(self._distribution.jars(self._on_progress))
            for attempt in range(1, _PORT_ATTEMPTS + 1):
                try:
                    self._start_once()
                except _PortTakenError as error:
                    if attempt == _PORT_ATTEMPTS:
                        raise SandboxError(f"{error}; this happened {attempt} times in a row") from error
                    self._end()
                    for node in self._nodes:
                        remove_folder(node.folder)
                else:
                    return
        except BaseException:  # including Ctrl-C
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all nodes (SIGTERM, after 10 s SIGKILL) and delete the data. Does nothing if nothing runs."""
        self._end()
        self._nodes = []
        if self._directory is not None:
            remove_folder(self._directory)
            self._directory = None

    def kill(self, broker_id: int) -> None:
        """Send SIGKILL to a broker and wait for its end. Its data stays.

        The cluster considers it alive until its session ends (``broker.session.timeout.ms``, 9 s), and a restart before
        that waits for it. Tests that cannot wait lower that property and ``broker.heartbeat.interval.ms``.
        """
        process.stop([self._running(broker_id)], grace_s=0)

    def pause(self, broker_id: int) -> None:
        """Send SIGSTOP to a broker: its connections stay open, but it does not respond."""
        process.pause(self._running(broker_id))

    def resume(self, broker_id: int) -> None:
        """Send SIGCONT to a paused broker."""
        self._running(broker_id).send(signal.SIGCONT)

    def restart(self, broker_id: int) -> None:
        """Start a broker again with its old ports and data, and wait until it is ready. If it runs, stop it first.

        Raises SandboxError as :meth:`start` does; the other brokers continue to run.
        """
        node = self._broker(broker_id)
        if node.process is not None:
            process.stop([node.process], _STOP_TIMEOUT_S)
        self._launch(node)
        self._await_ready([node], frozenset({broker_id}))

    def start_dead(self, directory: Path, processes: Mapping[int, process.Process]) -> None:
        """Start the nodes of the cluster in ``directory`` that no longer run, with their old ports and data.

        ``processes`` are those of its record, by node id. Raises SandboxError as :meth:`start` does; what runs goes on.
        """
        self._directory = directory
        self._java = find_java()
        self._class_path = class_path(self._distribution.jars(self._on_progress))
        folders = sorted(path.parent for path in directory.glob("*/server.properties"))
        self._nodes = [read_node(folder, processes) for folder in folders]
        dead = [node for node in self._nodes if not node.alive()]
        for node in dead:
            self._launch(node)
        brokers = [node for node in dead if node.broker]
        self._await_ready(brokers, frozenset(node.node_id for node in brokers))

    def _new_directory(self) -> Path:
        if self._wanted_directory is None:
            return Path(tempfile.mkdtemp(prefix="mirror-sandbox-"))
        directory = self._wanted_directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise SandboxError(f"{directory} is not empty: give a new folder for the cluster's data")
        except OSError as error:
            raise SandboxError(f"cannot use {directory} for the cluster's data: {error.strerror}") from error
        return directory

    def _start_once(self) -> None:
        self._nodes = self._plan()
        self._write_record()  # first, because it marks the folder as the sandbox's own
        controller = next(node for node in self._nodes if node.controller)
        for node in self._nodes:
            values = self._settings(node, controller)
            node.folder.mkdir()
            node.settings.write_text(render(values), encoding="ascii")
        if not self._distribution.zookeeper:
            self._format(formatting.new_id())
        for node in self._nodes:
            self._launch(node)
        brokers = [node for node in self._nodes if node.broker]
        self._await_ready(brokers, frozenset(node.node_id for node in brokers))

    def _settings(self, node: Node, controller: Node) -> dict[str, str]:
        brokers, listeners, properties = self._brokers, self._listeners, self._properties
        if not self._distribution.zookeeper:
            return settings(node, brokers=brokers, controller=controller, listeners=listeners, properties=properties)
        if not node.broker:
            return zookeeper_settings(node)
        return zookeeper_broker_settings(
            node, brokers=brokers, zookeeper=controller, listeners=listeners, properties=properties
        )

    def _plan(self) -> list[Node]:
        separate = self._brokers > 1 or self._distribution.zookeeper
        ids = list(range(1, self._brokers + 1)) + ([CONTROLLER_ID] if separate else [])
        ports = iter(free_ports(self._brokers * (1 + len(self._listeners)) + 1))
        nodes = []
        for node_id in ids:
            controller = node_id == CONTROLLER_ID if separate else True
            broker = node_id != CONTROLLER_ID
            names = ([CLIENT_LISTENER, *self._listeners] if broker else []) + (
                [CONTROLLER_LISTENER] if controller else []
            )
            folder = self.directory / (f"broker-{node_id}" if broker else "controller")
            own = {name: next(ports) for name in names}
            nodes.append(Node(node_id, broker, controller, folder, own, address=self._address))
        return nodes

    def _format(self, cluster_id: str) -> None:
        kept = formatting.kept_folder(self._class_path, self._features, self._properties)
        if kept is not None and formatting.format_as_kept(kept, self._nodes, cluster_id):
            return
        java = self._required_java()
        formatting.format_by_tool(java, self._options, self._class_path, self._nodes, cluster_id, self._features)
        if kept is not None:
            formatting.keep(kept, self._nodes[0].data)

    def _launch(self, node: Node) -> None:
        command = run_command(
            self._required_java(), self._options, self._class_path, node, zookeeper=self._distribution.zookeeper
        )
        node.log.touch()
        node.log_start = node.log.stat().st_size
        node.process = process.launch(command, output=node.log, outlives_owner=self._outlives_owner)
        self._write_record()

    def _write_record(self) -> None:
        nodes = [
            {"id": node.node_id, "pid": node.process.pid, "started": node.process.started}
            for node in self._nodes
            if node.process is not None
        ]
        record = {"bootstrap_servers": self.bootstrap_servers, "nodes": nodes}
        path = self.directory / RECORD_NAME
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(record), encoding="utf-8")
        fresh.replace(path)  # atomic: a reader never sees half of the record

    def _await_ready(self, brokers: list[Node], expected: frozenset[int]) -> None:
        waiting, until = list(brokers), time.monotonic() + _START_TIMEOUT_S
        while waiting:
            for node in self._nodes:
                if node in brokers or not node.broker:
                    _check_alive(node)
            waiting = [node for node in waiting if not expected <= alive_brokers(node.ports[CLIENT_LISTENER])]
            if waiting and time.monotonic() > until:
                raise SandboxError(
                    f"broker {waiting[0].node_id} is not ready after {_START_TIMEOUT_S:.0f} s; "
                    f"the end of its log:\n{waiting[0].log_tail()}"
                )
            if waiting:
                time.sleep(_POLL_S)

    def _end(self) -> None:
        # Brokers stop first: their shutdown needs the controller.
        running = [(node, node.process) for node in self._nodes if node.process is not None]
        try:
            process.stop([broker for node, broker in running if node.broker], _STOP_TIMEOUT_S)
        finally:
            process.stop([controller for node, controller in running if not node.broker], _STOP_TIMEOUT_S)

    def _broker(self, broker_id: int) -> Node:
        for node in self._nodes:
            if node.broker and node.node_id == broker_id:
                return node
        raise SandboxError(
            f"there is no broker {broker_id}: the brokers of this cluster have the ids 1 to {self._brokers}"
        )

    def _running(self, broker_id: int) -> process.Process:
        node = self._broker(broker_id)
        if node.process is None or not node.alive():
            raise SandboxError(f"broker {broker_id} does not run: restart it first")
        return node.process

    def _required_java(self) -> Path:
        if self._java is None:
            raise SandboxError("the cluster does not run: start it first")
        return self._java.path


class _PortTakenError(SandboxError):
    """Another process took a port after it was chosen."""


def _check_alive(node: Node) -> None:
    if node.alive():
        return
    kind = _PortTakenError if "Address already in use" in node.log_text() else SandboxError
    raise kind(f"node {node.node_id} died at its start; the end of its log:\n{node.log_tail()}")
