"""A real Prometheus (Debian's package), with its own configuration, data and port; the package's service never runs."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from mirror.sandbox import process
from mirror.sandbox.ports import HOST, free_ports
from tests.polling import eventually

_UP_WITHIN_S: Final = 60.0
_STOP_WITHIN_S: Final = 10.0
_PORT_ATTEMPTS: Final = 3
_INTERVAL: Final = "1s"


class Prometheus:
    """Where it listens, and what it says."""

    def __init__(self, port: int) -> None:
        self.port: Final = port

    def get(self, path: str, **parameters: str | Sequence[str]) -> Any:
        """The data of an answer of the API. Raises OSError while it does not answer; AssertionError: bad query."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=10)
        try:
            connection.request("GET", f"/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}")
            result = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        assert result["status"] == "success", f"{parameters}: {result.get('error')}"
        return result["data"]

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Its series now."""
        found: list[dict[str, Any]] = self.get("query", query=expr)["result"]
        return found

    def ranged(self, expr: str, seconds: float) -> list[dict[str, Any]]:
        """Its series over the last ``seconds``."""
        now = time.time()
        bounds = {"start": str(now - seconds), "end": str(now), "step": "1"}
        found: list[dict[str, Any]] = self.get("query_range", query=expr, **bounds)["result"]
        return found

    def label_values(self, label: str, selector: str) -> list[str]:
        """Which values a label has, as Grafana's label_values asks."""
        found: list[str] = self.get(f"label/{label}/values", **{"match[]": selector})
        return found

    def rules(self) -> dict[str, dict[str, Any]]:
        """The alerts by name, each with its ``health``, ``lastError`` and ``alerts``."""
        groups = self.get("rules")["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    def ready(self) -> bool:
        """Whether it answers."""
        try:
            self.get("status/runtimeinfo")
        except (OSError, http.client.HTTPException, ValueError):
            return False
        return True


@contextlib.contextmanager
def prometheus(folder: Path, targets: Sequence[str], rules: Path) -> Iterator[Prometheus]:
    """Running while the block runs: scrapes ``targets`` (host:port) and evaluates ``rules`` once a second."""
    program = shutil.which("prometheus")
    assert program is not None, "there is no prometheus on the PATH: make prometheus, or apt-get install prometheus"
    config = folder / "prometheus.yml"
    config.write_text(
        json.dumps(  # which YAML is as well
            {
                "global": {"scrape_interval": _INTERVAL, "evaluation_interval": _INTERVAL},
                "rule_files": [str(rules)],
                "scrape_configs": [{"job_name": "mirror", "static_configs": [{"targets": list(targets)}]}],
            }
        ),
        encoding="utf-8",
    )
    log = folder / "prometheus.log"
    for _ in range(_PORT_ATTEMPTS):
        (port,) = free_ports(1)
        own = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'prometheus-data'}"]
        command = [program, *own, f"--web.listen-address={HOST}:{port}", "--log.level=warn"]
        started = process.launch(command, output=log, outlives_owner=False)
        try:
            found = Prometheus(port)
            _await_ready(found, started)
            if started.alive():
                yield found
                return
            # Somebody else may have taken the port in between.
        finally:
            process.stop([started], _STOP_WITHIN_S)
    raise AssertionError(f"Prometheus does not start; its log:\n{log.read_text(encoding='utf-8')}")


def _await_ready(found: Prometheus, started: process.Process) -> None:
    eventually(lambda: not started.alive() or found.ready(), within_s=_UP_WITHIN_S, what="Prometheus")
