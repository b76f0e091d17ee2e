"""What a job says of its telemetry at the start."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import pytest

from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.telemetry_bridge import run_telemetry


class Lines:
    """In the place of the consoles."""

    def __init__(self) -> None:
        self.infos = list[str]()
        self.warnings = list[str]()
        self.info = self.infos.append
        self.warning = self.warnings.append


@pytest.mark.parametrize(
    ("host", "readers"),
    [
        ("127.0.0.1", "everybody on this host"),
        ("localhost", "everybody on this host"),
        ("0.0.0.0", "everybody who can connect to this port"),  # noqa: S104 - it is what this is about
    ],
)
def test_the_endpoint_line_names_the_readers_and_the_content(
    host: str, readers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "prometheus")
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_HOST", host)
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", "0")
    said = Lines()
    with run_telemetry(tmp_path, cast("Consoles", said)):
        (line,) = said.infos
    assert re.match(rf"measurements for Prometheus at http://{re.escape(host)}:\d+/metrics, ", line)
    assert line.endswith(
        f", for {readers}, without a login: names of flows and topics, lags, rates, causes of expiries"
    )
    assert said.warnings == []


def test_without_prometheus_there_is_no_endpoint_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_METRICS_EXPORTER", raising=False)
    said = Lines()
    with run_telemetry(tmp_path, cast("Consoles", said)):
        pass
    assert (said.infos, said.warnings) == ([], [])
