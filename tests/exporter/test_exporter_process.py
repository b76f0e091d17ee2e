"""``mirror exporter`` as a process: it serves and pushes before a cluster has answered, and ends in order."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from mirror.exit_status import DONE
from tests.e2e.prometheus import prometheus
from tests.e2e.said import EXPORTER, Said
from tests.exporter.served import Served
from tests.polling import eventually
from tests.telemetry import receiver
from tests.telemetry.dashboards import RULES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIGURATION = """
[clusters.a]
"bootstrap.servers" = "{address}"
[clusters.b]
"bootstrap.servers" = "localhost:1"
[flows.f]
source = "a"
target = "b"
topics = ["orders"]
"""


def a_free_port() -> int:
    with closing(socket.socket()) as port:
        port.bind(("127.0.0.1", 0))
        return int(port.getsockname()[1])


@contextmanager
def started(
    folder: Path, port_of_exporter: int = 0, **environ: str
) -> Iterator[tuple[subprocess.Popen[str], Said, str]]:
    """The exporter's process, what it says, and its address; no cluster of its file answers."""
    config = folder / "mirror.toml"
    with closing(socket.socket()) as port:
        port.bind(("127.0.0.1", 0))  # nothing listens there, and nothing else can; nor at port 1
        config.write_text(CONFIGURATION.format(address=f"127.0.0.1:{port.getsockname()[1]}"))
        command = [sys.executable, "-P", "-m", "mirror.cli", "exporter", "--config", str(config)]
        with subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{port_of_exporter}", "--every", "1"],
            env={**os.environ, **environ},
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            said = Said(child)
            try:
                yield child, said, said.find(EXPORTER)
            finally:
                child.send_signal(signal.SIGTERM)
                said.all()  # the block's end closes the pipe, under the thread that reads it


def serves(exporter: Served, text: str) -> bool:
    """Whether it has a text; it listens again after an edit."""
    try:
        return text in exporter.get("/metrics")[1]
    except OSError:
        return False


def test_it_serves_and_pushes_while_no_cluster_answers_and_ends_in_order(tmp_path: Path) -> None:
    with receiver.http() as (endpoint, received):
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_METRIC_EXPORT_INTERVAL": "200"}
        with started(tmp_path, a_free_port(), **environ) as (child, said, address):
            exporter = Served(int(address.rpartition(":")[2]))
            assert exporter.get("/healthz") == (200, "ok\n")
            assert exporter.get("/readyz") == (503, "not tried yet: f\n")
            assert "Nothing was read yet" in exporter.get("/")[1]
            assert "mirror_flow_info{" in exporter.get("/metrics")[1]
            eventually(lambda: "mirror.flow.info" in received.metrics, what="the same by OTLP")
            config = tmp_path / "mirror.toml"
            config.write_text(config.read_text().replace("[flows.f]", "[flows.renamed]"))
            eventually(lambda: serves(exporter, 'flow="renamed"'), what="the edit")
        assert child.wait(30) == DONE, said.all()
        assert "Traceback" not in said.all()


@pytest.mark.cluster
@pytest.mark.prometheus
def test_prometheus_scrapes_it_and_works_out_the_alerts(tmp_path: Path) -> None:
    with started(tmp_path) as (_, _, address), prometheus(tmp_path, [address], RULES) as asked:
        away = "mirror_cluster_up == 0"
        eventually(lambda: len(asked.query(away)) == 2, within_s=60, what="both clusters to be away", every_s=0.5)
        assert asked.query('up{job="mirror"} == 1')

        def pending() -> list[str]:
            return sorted(one["labels"]["cluster"] for one in asked.rules()["MirrorClusterAway"]["alerts"])

        eventually(lambda: pending() == ["a", "b"], what="the alert to be pending", every_s=0.5)
        assert {name: one["lastError"] for name, one in asked.rules().items() if one["health"] != "ok"} == {}
