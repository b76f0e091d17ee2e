"""Lineage: events made of the models of OpenLineage's client, sent by it to a server of the test."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from openlineage.client.event_v2 import RunState
from openlineage.client.serde import Serde

from mirror.errors import ConfigError
from mirror.extras import LINEAGE, install
from mirror.relay.model.ranges import CountBasis, Outcome
from mirror.runtime.clock import SystemClock
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.telemetry_bridge import close_lineage
from mirror.telemetry.lineage.emitter import Lineage, lineage_of
from mirror.telemetry.lineage.events import MAX_TOPICS, run_events
from mirror.telemetry.lineage.facts import (
    JobKind,
    LineageJob,
    RunEnd,
    TopicCounts,
    end_of,
    topic_counts,
    topic_verdicts,
)
from mirror.verify.partition_results import PartitionResult
from tests.polling import eventually
from tests.telemetry.results import AT_MS, result

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from openlineage.client.event_v2 import RunEvent

JOB = LineageJob(flow="f", kind=JobKind.RUN, run="r1", source="paris-1:9092,paris-2:9092", target="berlin:9093")


def as_json(event: RunEvent) -> Any:
    """As the client sends it."""
    return json.loads(Serde.to_json(event))


def sent(job: LineageJob, *results: Any, state: RunState = RunState.RUNNING, error: str = "") -> Any:
    (event,) = run_events(job, "etl", state, AT_MS, topic_counts(results), error)
    return as_json(event)


def test_an_event_names_the_job_both_topics_and_how_much_was_copied() -> None:
    event = sent(JOB, result(0), result(1, records=7, bytes=70))
    assert (event["eventType"], event["eventTime"]) == ("RUNNING", "2027-01-15T08:00:00.000+00:00")
    assert (event["job"]["namespace"], event["job"]["name"]) == ("etl", "mirror.f")
    kind = event["job"]["facets"]["jobType"]
    assert (kind["processingType"], kind["integration"], kind["jobType"]) == ("BATCH", "KAFKA_SPARK_MIRROR", "RUN")
    (read,), (written,) = event["inputs"], event["outputs"]
    assert (read["namespace"], read["name"]) == ("kafka://paris-1:9092", "orders")
    assert (written["namespace"], written["name"]) == ("kafka://berlin:9093", "a.orders")
    assert written["outputFacets"]["outputStatistics"].items() >= {"rowCount": 107, "size": 5_070}.items()
    assert read["inputFacets"]["inputStatistics"].items() >= {"rowCount": 107, "size": 5_070}.items()


def test_a_run_has_one_id_in_all_its_events_and_each_run_another() -> None:
    events = [sent(JOB), sent(JOB, result(0)), sent(JOB, state=RunState.COMPLETE)]
    (run_id,) = {event["run"]["runId"] for event in events}
    other = LineageJob(flow="f", kind=JobKind.RUN, run="r2", source=JOB.source, target=JOB.target)
    assert sent(other)["run"]["runId"] != run_id


def test_a_count_that_is_not_known_of_each_partition_is_left_out() -> None:
    (written,) = sent(JOB, result(0), result(1, counted=CountBasis.UNKNOWN))["outputs"]
    assert written["outputFacets"] == {}


def test_only_the_last_of_many_events_ends_the_run() -> None:
    topics = [TopicCounts(f"t{number}", f"t{number}", 1, 1) for number in range(MAX_TOPICS + 1)]
    first, last = map(as_json, run_events(JOB, "etl", RunState.FAIL, AT_MS, topics, "broken"))
    assert (first["eventType"], len(first["outputs"]), first["run"]["facets"]) == ("RUNNING", MAX_TOPICS, {})
    assert (last["eventType"], len(last["outputs"])) == ("FAIL", 1)
    assert last["run"]["facets"]["errorMessage"]["message"] == "broken"


def test_a_verification_is_a_job_that_asserts_the_target() -> None:
    job = LineageJob(flow="f", kind=JobKind.VERIFICATION, run="v", source=JOB.source, target=JOB.target)
    lacking = PartitionResult(topic="orders", target_topic="a.orders", partition=3, error="the target is away")
    (event,) = run_events(job, "etl", RunState.COMPLETE, AT_MS, topic_verdicts([lacking]))
    found = as_json(event)
    assert (found["job"]["name"], found["outputs"]) == ("mirror.f.verify", [])
    source, target = found["inputs"]
    assert (source["name"], source.get("inputFacets") or {}, target["name"]) == ("orders", {}, "a.orders")
    equal, complete = target["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (equal["assertion"], equal["success"]) == ("equal_to_source", False)
    assert (complete["assertion"], complete["success"]) == ("complete", False)
    assert "partition 3: unknown; the target is away" in equal["description"]


@pytest.mark.parametrize(
    ("outcome", "end"),
    [
        (Outcome.COMPLETE, RunEnd.COMPLETE),
        (Outcome.UNFINISHED, RunEnd.ABORT),
        (Outcome.FENCED, RunEnd.ABORT),
        (Outcome.EXPIRED, RunEnd.FAIL),
        (Outcome.FAILED, RunEnd.FAIL),
    ],
)
def test_each_outcome_has_its_word(outcome: Outcome, end: RunEnd) -> None:
    assert end_of(outcome) is end


# --- what is sent


class Receiver:
    """A server that takes events, with ``status``."""

    def __init__(self, status: int = 201) -> None:
        self.events: list[Any] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver(request: pytest.FixtureRequest) -> Iterator[Receiver]:
    found = Receiver(getattr(request, "param", 201))
    yield found
    found.close()


def opened(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> tuple[Lineage, list[str]]:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    warnings: list[str] = []
    return lineage_of(variables, SystemClock(), warnings.append), warnings


def variables_of(receiver: Receiver) -> dict[str, str]:
    return {"OPENLINEAGE_URL": f"http://127.0.0.1:{receiver.server.server_port}", "OPENLINEAGE_NAMESPACE": "etl"}


def test_a_receiver_gets_the_events_of_a_run_in_their_order(
    monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    lineage, warnings = opened(monkeypatch, variables_of(receiver))
    lineage.begin(JOB)
    lineage.copied("f", [result(0, records=3), result(1, records=4)])
    lineage.copied("f", [result(0, records=5)])
    lineage.copied("another", [result(0)])
    lineage.end("f", RunEnd.COMPLETE)
    lineage.close(10_000)
    events = receiver.events
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "RUNNING", "COMPLETE"]
    counts = [
        one["outputFacets"]["outputStatistics"]["rowCount"] for event in events for one in event.get("outputs", ())
    ]
    assert counts == [7, 12, 12], "sums of the run"
    assert (lineage.dropped, warnings) == (0, [])


def test_a_run_that_the_process_leaves_behind_is_aborted(monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> None:
    lineage, _ = opened(monkeypatch, variables_of(receiver))
    lineage.begin(JOB)
    lineage.close(10_000)
    assert [event["eventType"] for event in receiver.events] == ["START", "ABORT"]


def test_the_end_is_sent_though_the_receiver_was_away_at_the_start() -> None:
    sent: list[RunEvent] = []
    began, is_away = threading.Event(), True

    def emit(event: RunEvent) -> None:
        began.set()
        if is_away:
            raise OSError("refused")
        sent.append(event)

    lineage = Lineage(SystemClock(), "etl", emit)
    lineage.begin(JOB)
    assert began.wait(10)
    eventually(lambda: lineage.dropped, what="the refusal")
    is_away = False
    lineage.copied("f", [result(0)])
    lineage.end("f", RunEnd.COMPLETE)
    lineage.close(10_000)
    assert ([event.eventType for event in sent], lineage.dropped) == ([RunState.RUNNING, RunState.COMPLETE], 1)


def test_a_period_names_only_topics_of_which_something_was_copied() -> None:
    sent: list[RunEvent] = []
    lineage = Lineage(SystemClock(), "etl", sent.append)
    lineage.begin(JOB)
    idle = result(0, topic="quiet", records=0, bytes=0, timeline=None)
    lineage.copied("f", [idle, result(0)])
    lineage.close(10_000)
    assert [[one.name for one in event.inputs or ()] for event in sent] == [[], ["orders"], ["orders"]]


@pytest.mark.parametrize("receiver", [403], indirect=True)
def test_what_a_receiver_refuses_is_counted_and_said(
    monkeypatch: pytest.MonkeyPatch, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    lineage, _ = opened(monkeypatch, variables_of(receiver))
    lineage.begin(JOB)
    close_lineage(lineage, Consoles())
    assert lineage.dropped >= 1
    assert "OpenLineage's receiver has not accepted" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "variables",
    [{}, {"OPENLINEAGE_NAMESPACE": "etl"}, {"OPENLINEAGE_URL": "http://h", "OPENLINEAGE_DISABLED": "true"}],
)
def test_nothing_is_sent_unless_it_is_configured(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    lineage, warnings = opened(monkeypatch, variables)
    lineage.begin(JOB)
    lineage.end("f", RunEnd.COMPLETE)
    lineage.close(0)
    assert (lineage._queue, warnings) == (None, [])


def test_variables_of_other_programs_do_not_fail_a_job_without_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirror.telemetry.lineage.emitter.missing", lambda extra: f"needs it: {install(extra)}")
    lineage, warnings = opened(monkeypatch, {"OPENLINEAGE_URL": "http://h"})
    lineage.close(0)
    assert warnings == [f"OPENLINEAGE_URL: no lineage is sent: it needs it: {install(LINEAGE)}"]


def test_settings_that_the_client_refuses_are_an_error_without_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"OPENLINEAGE__TRANSPORT": '{"type": "http", "auth": {"type": "api_key", "apiKey": "top-secret"}}'}
    with pytest.raises(ConfigError, match="OPENLINEAGE__TRANSPORT") as error:
        opened(monkeypatch, variables)
    assert "top-secret" not in str(error.value)
