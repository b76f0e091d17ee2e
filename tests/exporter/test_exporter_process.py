"""``mirror exporter`` as a process: it serves and pushes before a cluster has answered, and ends in order."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

from mirror.exit_status import DONE
from tests.e2e.said import EXPORTER, Said
from tests.exporter.served import Served
from tests.polling import eventually
from tests.telemetry import receiver

if TYPE_CHECKING:
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


def test_it_serves_and_pushes_while_no_cluster_answers_and_ends_in_order(tmp_path: Path) -> None:
    config = tmp_path / "mirror.toml"
    with closing(socket.socket()) as port, receiver.http() as (endpoint, received):
        port.bind(("127.0.0.1", 0))  # nothing listens there, and nothing else can; nor at port 1
        config.write_text(CONFIGURATION.format(address=f"127.0.0.1:{port.getsockname()[1]}"))
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_METRIC_EXPORT_INTERVAL": "200"}
        command = [sys.executable, "-P", "-m", "mirror.cli", "exporter", "--config", str(config)]
        with subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", "--every", "1"],
            env={**os.environ, **environ},
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            try:
                said = Said(child)
                exporter = Served(int(said.find(EXPORTER).rpartition(":")[2]))
                assert exporter.get("/healthz") == (200, "ok\n")
                assert exporter.get("/readyz") == (503, "not read yet: a, b\n")
                assert "Nothing was read yet" in exporter.get("/")[1]
                assert "mirror_flow_info{" in exporter.get("/metrics")[1]
                eventually(lambda: "mirror.flow.info" in received.metrics, what="the same by OTLP")
            finally:
                child.send_signal(signal.SIGTERM)
            assert child.wait(30) == DONE, said.all()
            assert "Traceback" not in said.all()
