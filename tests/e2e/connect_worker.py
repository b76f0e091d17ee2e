"""A worker of Kafka Connect, which its users configure by REST."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mirror.sandbox.fetch import class_path
from mirror.sandbox.java import find_java
from mirror.sandbox.node import render
from mirror.sandbox.ports import free_ports
from mirror.sandbox.process import launch, stop
from tests import jvm
from tests.benchmarks.mirrormaker import GRACE_S, LOGGING, mirrormaker_jars
from tests.e2e.broker_side import WITHIN_S
from tests.polling import eventually

HEAP: Final = ("-Xms128m", "-Xmx512m", *jvm.PLAIN)
START_S: Final = 180.0
"""Within this a worker, or MirrorMaker 2, begins to copy on a machine that is busy."""


class Worker:
    """It is of its own, a group of one. Its file and log are in a folder."""

    def __init__(self, folder: Path, name: str, address: str, group: str, settings: Mapping[str, str]) -> None:
        """``name`` is that of its files."""
        (self.port,) = free_ports(1)
        stores = {
            f"{kind}.storage.{key}": value
            for kind, topic in {"offset": "offsets", "config": "configs", "status": "status"}.items()
            for key, value in {"topic": f"{group}-{topic}", "replication.factor": "1"}.items()
        }
        whole = {
            "bootstrap.servers": address,
            "group.id": group,
            "listeners": f"http://127.0.0.1:{self.port}",
            "scheduled.rebalance.max.delay.ms": "0",
            **stores,
            **settings,
        }
        file = folder / f"{name}.properties"
        file.write_text(render(whole), encoding="ascii")
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        jars = class_path(mirrormaker_jars())
        command: Sequence[str | Path] = [find_java().path, *HEAP, LOGGING, "-cp", jars, main, file]
        self.process: Final = launch(command, output=folder / f"{name}.log", outlives_owner=False)

    def close(self) -> None:
        """Stop it in order."""
        stop([self.process], GRACE_S)

    def run(self, connector: str, config: Mapping[str, str]) -> None:
        """Create the connector, or have it go on."""
        path = self._path(connector)
        eventually(lambda: self._answers("PUT", f"{path}/config", config), within_s=START_S, what="a worker")
        eventually(lambda: self._answers("PUT", f"{path}/resume"), within_s=WITHIN_S, what="a connector")

    def stop(self, connector: str) -> None:
        """Stop the connector in order; the worker goes on."""
        path = self._path(connector)
        eventually(lambda: self._answers("PUT", f"{path}/stop"), within_s=WITHIN_S, what="a worker that answers")
        eventually(lambda: self._is_stopped(path), within_s=WITHIN_S, what="a connector without tasks")

    @staticmethod
    def _path(connector: str) -> str:
        return f"/connectors/{urllib.parse.quote(connector)}"

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
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:  # noqa: S310 - as above
            text = answer.read()
        return json.loads(text) if text else None
