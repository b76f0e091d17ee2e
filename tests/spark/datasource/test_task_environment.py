"""Where telemetry goes reaches tasks on other hosts, and no setting of Spark's, for it may hold a password or a key."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from mirror.spark.datasource.options import FlowOptions
from mirror.spark.datasource.sink import RangesStreamWriter, RangesWriter
from mirror.spark.datasource.task_environment import TaskEnvironment

SECRET = "m4rker-of-a-key"
SAID = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": f"https://me:{SECRET}@collector:4318",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"http://collector/v1/metrics?api-key={SECRET}",
    "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {SECRET}",
    "OTEL_RESOURCE_ATTRIBUTES": "site=paris",
    "MIRROR_LOG_FORMAT": "json",
}
OTHERS = {"PATH": "/bin", "MIRROR_CLUSTERS__A__SASL_PASSWORD": "pa55-word", "XOTEL_": "1"}


def test_it_is_telemetry_s_variables_and_nothing_else() -> None:
    assert TaskEnvironment.of({**OTHERS, **SAID}).variables == SAID


def test_variables_of_an_executors_host_are_kept() -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "PATH": "/usr/bin"}
    TaskEnvironment.of(SAID).complete(environment)
    assert environment == {**SAID, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "PATH": "/usr/bin"}


@pytest.mark.parametrize("kind", [RangesWriter, RangesStreamWriter])
def test_a_pickled_writer_has_the_environment(
    kind: type[RangesWriter | RangesStreamWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made in a process on the driver's host, pickled by Spark, and used in a worker of an executor."""
    for name, value in SAID.items():
        monkeypatch.setenv(name, value)
    writer = kind(FlowOptions(Path("mirror.toml"), "f", Path("ledger")))
    pickled = pickle.dumps(writer)
    for name in SAID:
        monkeypatch.delenv(name)
    arrived = pickle.loads(pickled)  # noqa: S301 - our own
    assert SECRET not in f"{writer!r} {writer.environment!r}"
    arrived.write(iter(()))
    assert {name: os.environ.get(name) for name in SAID} == SAID
