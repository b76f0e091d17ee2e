"""One log line per event, with the ids of its trace."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.telemetry import logs
from mirror.telemetry.traces.ids import partition_id, period_id
from tests.telemetry.results import expired, result

PERIOD = period_id("f", "run", 0)


@pytest.fixture(autouse=True)
def _unconfigured() -> Iterator[None]:
    """As in a process that is not configured yet."""
    before = logs.EVENTS.handlers, logs.EVENTS.level, logs.EVENTS.propagate
    logs.EVENTS.handlers = []
    yield
    logs.EVENTS.handlers, logs.EVENTS.propagate = before[0], before[2]
    logs.EVENTS.setLevel(before[1])


def configure(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as context:
        context.setattr(logging.getLogger(), "handlers", [])  # pytest's own are put there for each phase
        logs.configure()


def test_events_are_logged_as_json_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRROR_LOG_FORMAT", "json")
    configure(monkeypatch)
    logs.configure()  # a worker runs many tasks
    logs.log_partition(expired(1), PERIOD, 0)
    lines = [json.loads(text) for text in capsys.readouterr().err.splitlines()]
    assert [(line["level"], line["message"]) for line in lines] == [
        ("WARNING", "expired"),
        ("INFO", "retry"),
        ("ERROR", "expired"),
    ]
    own = partition_id(PERIOD, "orders", 1, 0)
    assert [line["event"] for line in lines] == ["mirror.delivery.expired", "mirror.retry", "mirror.partition"]
    assert {(line["mirror.flow"], line["mirror.topic"], line["mirror.partition"]) for line in lines} == {
        ("f", "orders", 1)
    }
    assert {(line["trace_id"], line["span_id"]) for line in lines} == {(own.trace_hex, own.span_hex)}
    assert lines[0]["cause"] == "not enough replicas"
    assert lines[0]["may_have_been_written"] is True
    assert lines[2]["error"] == "too late"


def test_events_are_logged_as_text_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch)
    logs.log_partition(result(1, Outcome.FENCED, error='a "newer" one'), PERIOD, 0)
    (line,) = capsys.readouterr().err.splitlines()
    assert " WARNING mirror.events fenced flow=f topic=orders partition=1 " in line
    assert 'error="a \\"newer\\" one"' in line
    assert f"trace_id={PERIOD.trace_hex}" in line


def test_complete_partition_is_not_logged(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch)
    logs.log_partition(result(1), PERIOD, 0)
    assert capsys.readouterr().err == ""


def test_a_line_about_a_flow_names_it_as_spans_do() -> None:
    line = json.loads(logs.json_line("WARNING", "mirror.warning", 'flow a.b-1: "late"\nagain', 0.25))
    assert line == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "WARNING",
        "event": "mirror.warning",
        "message": 'flow a.b-1: "late"\nagain',
        "mirror.flow": "a.b-1",
    }
