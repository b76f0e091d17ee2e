"""MirrorMaker 2's source connector in a worker of Kafka Connect, which its users configure by REST."""

from __future__ import annotations

import contextlib
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mirror.sandbox.fetch import class_path
from mirror.sandbox.java import find_java
from mirror.sandbox.node import render
from mirror.sandbox.process import Process, launch, stop
from tests.benchmarks.mirrormaker import GRACE_S, LOGGING, mirrormaker_jars
from tests.e2e.broker_side import WITHIN_S
from tests.polling import eventually
from tests.takeover.real.site import FLUSH_MS, HEAP, START_S, TASKS, TRANSACTION_MS, MirrorMakerSite

_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"


class ConnectSite(MirrorMakerSite):
    """The worker goes on while the connector is stopped; it is started again after it was killed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._group: Final = f"workers-{self.flow}"
        self._connector: Final = f"copy {self.flow}"
        self._session_ms: Final = self.settings[f"{self.other}.session.timeout.ms"]
        self._worker: Process | None = None
        self._port = 0
        self.positions = f"{self._group}-offsets"
        self.tasks = f"{self._group}-{self._connector}"
        self.options.extend(["--offsets-topic", self.positions])

    def close(self) -> None:
        """Stop the worker."""
        if self._worker is not None:
            stop([self._worker], GRACE_S)

    @contextlib.contextmanager
    def mirrormaker(self) -> Iterator[Process]:
        """The connector runs while the block does; it is stopped in order at the end, unless the worker was killed."""
        if self._worker is None or not self._worker.alive():
            self._worker = self._start()
        worker, path = self._worker, f"/connectors/{self._connector.replace(' ', '%20')}"
        eventually(lambda: self._answers("PUT", f"{path}/config", self._config()), within_s=START_S, what="a worker")
        eventually(lambda: self._answers("PUT", f"{path}/resume"), within_s=WITHIN_S, what="a connector")
        yield worker
        if worker.alive():
            eventually(lambda: self._answers("PUT", f"{path}/stop"), within_s=WITHIN_S, what="a worker that answers")
            eventually(lambda: self._is_stopped(path), within_s=WITHIN_S, what="a connector without tasks")

    def _start(self) -> Process:
        with socket.create_server(("127.0.0.1", 0)) as found:
            self._port = found.getsockname()[1]
        stores = {
            f"{kind}.storage.{key}": value
            for kind, name in {"offset": "offsets", "config": "configs", "status": "status"}.items()
            for key, value in {"topic": f"{self._group}-{name}", "replication.factor": "1"}.items()
        }
        settings = {
            "bootstrap.servers": self.target.address,
            "group.id": self._group,
            "listeners": f"http://127.0.0.1:{self._port}",
            "key.converter": _BYTES,
            "value.converter": _BYTES,
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": str(FLUSH_MS),
            "session.timeout.ms": self._session_ms,
            "heartbeat.interval.ms": str(int(self._session_ms) // 6),
            "scheduled.rebalance.max.delay.ms": "0",
            "producer.transaction.timeout.ms": str(TRANSACTION_MS),
            "exactly.once.source.support": "enabled" if self.exactly_once else "disabled",
            **stores,
        }
        file = self.folder / "worker.properties"
        file.write_text(render(settings), encoding="ascii")
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        command: list[str | Path] = [
            find_java().path,
            *HEAP,
            LOGGING,
            "-cp",
            class_path(mirrormaker_jars()),
            main,
            file,
        ]
        return launch(command, output=self.folder / "worker.log", outlives_owner=False)

    def _config(self) -> dict[str, str]:
        return {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "source.cluster.alias": self.alias,
            "target.cluster.alias": self.other,
            "source.cluster.bootstrap.servers": self.source.address,
            "target.cluster.bootstrap.servers": self.target.address,
            "source.consumer.isolation.level": "read_committed" if self.exactly_once else "read_uncommitted",
            "topics": ",".join(self.topics),
            "tasks.max": str(TASKS),
            "key.converter": _BYTES,
            "value.converter": _BYTES,
            "header.converter": _BYTES,
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "sync.topic.acls.enabled": "false",
            "sync.topic.configs.enabled": "false",
        }

    def _is_stopped(self, path: str) -> bool:
        status = self._ask("GET", f"{path}/status")
        return bool(status["connector"]["state"] == "STOPPED" and not status["tasks"])

    def _answers(self, method: str, path: str, body: object = None) -> bool:
        try:
            self._ask(method, path, body)
        except (OSError, urllib.error.HTTPError):  # it begins, or there is a rebalance
            return False
        return True

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:  # noqa: S310 - as above
            text = answer.read()
        return json.loads(text) if text else None
