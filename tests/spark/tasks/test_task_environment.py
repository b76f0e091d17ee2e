"""Where telemetry goes reaches tasks on other hosts, and no setting of Spark's, for it may hold a password or a key."""

from __future__ import annotations

import os
import pickle
from functools import partial
from pathlib import Path

import pytest

from mirror.spark.tasks.copy_task import copy_in_worker
from mirror.spark.tasks.options import FlowOptions
from mirror.spark.tasks.task_environment import TaskEnvironment
from mirror.spark.tasks.task_spec import CopyTask, TaskSpec

SECRET = "m4rker-of-a-key"
SAID = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": f"https://me:{SECRET}@collector:4318",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"http://collector/v1/metrics?api-key={SECRET}",
    "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {SECRET}",
    "OTEL_RESOURCE_ATTRIBUTES": "site=paris",
    "MIRROR_LOG_FORMAT": "json",
    "MIRROR_TRACE_SLOW_MS": "500",
}
OTHERS = {"PATH": "/bin", "MIRROR_CLUSTERS__A__SASL_PASSWORD": "pa55-word", "XOTEL_": "1"}


def test_it_is_telemetry_s_variables_and_nothing_else() -> None:
    assert TaskEnvironment.of({**OTHERS, **SAID}).variables == SAID


def test_variables_of_an_executors_host_are_kept() -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "PATH": "/usr/bin"}
    TaskEnvironment.of(SAID).complete(environment)
    assert environment == {**SAID, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "PATH": "/usr/bin"}


def test_a_job_brings_the_environment_to_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickled by Spark with the function, and unpickled in a worker of an executor."""
    for name, value in SAID.items():
        monkeypatch.setenv(name, value)
    options, task = FlowOptions(Path("mirror.toml"), "f", Path("ledger")), CopyTask(TaskSpec(run="r", job=1), [])
    given = partial(copy_in_worker, options, TaskEnvironment.of(os.environ))
    pickled = pickle.dumps(given)
    for name in SAID:
        monkeypatch.delenv(name)
    monkeypatch.setattr("mirror.spark.tasks.copy_task.copy_task", lambda *_: None)
    arrived = pickle.loads(pickled)  # noqa: S301 - our own
    assert SECRET not in repr(given)
    arrived(task)
    assert {name: os.environ.get(name) for name in SAID} == SAID
