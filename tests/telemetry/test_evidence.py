"""What the last verification and rehearsal of a flow came to: in their records, the metrics and the report."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from mirror.client import TopicPartition
from mirror.rehearsal.summary import to_json
from mirror.rehearsal.values import Backlog, Blocker, GroupRehearsal, Kind, Limits, RecoveryTime, Rehearsal
from mirror.relay.progress.stored_record import plain, record_of
from mirror.spark.verification.verification_result import FlowVerification
from mirror.telemetry.evidence import MAX_PARTITIONS, Evidence, LastRehearsal, LastVerification
from mirror.telemetry.metrics.metric_store import MetricStore
from mirror.telemetry.metrics.record_results import record_evidence
from mirror.verify.partition_results import PartitionResult
from mirror.verify.values import Difference, Verdict
from mirror.verify.values import Kind as Differs
from tests.telemetry import runs
from tests.telemetry.test_report_page import document, words

T = TypeVar("T")

NOON_MS = runs.BEGAN_MS - 3_600_000
HOUR_MS = 3_600_000


def verdict(end: int, *differences: Difference) -> Verdict:
    return Verdict(
        source_start=0,
        target_start=0,
        source_end=end,
        target_end=end,
        records=end,
        bytes=10 * end,
        differences=[*differences],
    )


def compared(partition: int, found: Verdict | None, *, topic: str = "orders", error: str = "") -> PartitionResult:
    return PartitionResult(topic=topic, target_topic=f"a.{topic}", partition=partition, verdict=found, error=error)


MISSING = Difference(kind=Differs.MISSING, source_offset=7, target_offset=7, count=3)
EQUAL = [compared(0, verdict(70)), compared(1, verdict(30)), compared(0, verdict(5), topic="clicks")]
DIFFERENT = [compared(0, verdict(70)), compared(1, verdict(7, MISSING)), compared(2, None, error="no leader")]


BACKLOG = Backlog(
    old=TopicPartition("orders", 0),
    new=TopicPartition("a.orders", 0),
    records=40,
    bytes=400,
    oldest_ms=NOON_MS - 90_000,
)


def verified(*results: PartitionResult, error: str = "", partial: bool = False) -> dict[str, Any]:
    return FlowVerification(flow="f", results=[*results], error=error, partial=partial).to_record()


def rehearsed(**more: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "flow": "f",
        "old": "paris",
        "new": "berlin",
        "time_ms": NOON_MS,
        "limits": Limits(),
        "groups": [GroupRehearsal(group="billing")],
        "backlogs": [BACKLOG],
        "recovery": RecoveryTime(seconds=12.5, bytes_per_second=32.0),
    }
    return to_json(Rehearsal(**{**values, **more}))


def verify(record: dict[str, Any], time_ms: int, earlier: LastVerification | None = None) -> LastVerification:
    """What the topic has after a verification."""
    return stored(LastVerification.of(record, time_ms, earlier))


def stored(value: T) -> T:
    found = record_of(type(value), json.loads(json.dumps(plain(value))))
    assert found == value
    return value


def test_next_verification_that_finds_a_difference_keeps_the_time_of_the_last_equal_one() -> None:
    first = verify(verified(*EQUAL), NOON_MS)
    assert (first.time_ms, first.equal_ms, first.outcomes) == (NOON_MS, NOON_MS, {"equal": 3})
    assert (first.equal_to, first.records, first.bytes) == ({"orders": 100, "clicks": 5}, 105, 1_050)
    second = verify(verified(*DIFFERENT), NOON_MS + HOUR_MS, first)
    assert (second.time_ms, second.equal_ms) == (NOON_MS + HOUR_MS, NOON_MS)
    assert (second.outcomes, second.differing) == ({"equal": 1, "different": 1, "unknown": 1}, {"missing": 3})
    assert [(one.partition, one.outcome) for one in second.partitions] == [
        (1, "different"),
        (2, "unknown"),
        (0, "equal"),
    ]
    third = verify(verified(error="no broker answers"), NOON_MS + 2 * HOUR_MS, second)
    assert (third.error, third.equal_ms) == ("no broker answers", NOON_MS)


def test_partial_verification_keeps_the_time_of_the_last_one_of_all_that_is_copied() -> None:
    first = verify(verified(*EQUAL, partial=True), NOON_MS - HOUR_MS)
    assert (first.equal_ms, first.partial) == (0, True), "not all has ever been found equal"
    whole = verify(verified(*EQUAL), NOON_MS, first)
    last = verify(verified(*EQUAL, partial=True), NOON_MS + HOUR_MS, whole)
    assert (last.time_ms, last.equal_ms) == (NOON_MS + HOUR_MS, NOON_MS)
    metrics = MetricStore()
    record_evidence(metrics, "f", Evidence(last))
    assert measured(metrics)["mirror.verify.equal.timestamp"] == {("f",): NOON_MS / 1000}
    text = shown(Evidence(last))
    assert "only a part was compared (--from or --check)" in text
    assert "all of it last found equal: 2" in text, "a date"


def test_of_many_partitions_the_worst_are_kept() -> None:
    many = [compared(number, verdict(1)) for number in range(MAX_PARTITIONS + 50)]
    found = verify(verified(*many, compared(999, None, error="no leader")), NOON_MS)
    assert (len(found.partitions), found.partitions[0].partition) == (MAX_PARTITIONS, 999)
    assert found.equal_to == {"orders": MAX_PARTITIONS + 50}


def test_rehearsal_is_read_as_it_was_written() -> None:
    blocker = Blocker(kind=Kind.ACL, name="topic orders", reason="Read is missing", action="grant it")
    found = stored(LastRehearsal.of(rehearsed(blockers=[blocker])))
    assert (found.time_ms, found.ready, found.groups, found.records) == (NOON_MS, False, 1, 40)
    assert (found.point_seconds, found.time_seconds) == (90.0, 12.5)
    assert found.blockers[0].reason == "Read is missing"
    found = stored(LastRehearsal.of(rehearsed(backlogs=[])))
    assert (found.ready, found.records, found.point_seconds, found.time_seconds) == (True, 0, 0.0, 0.0)


def evidence(*results: PartitionResult, rehearsal: dict[str, Any] | None = None) -> Evidence:
    return Evidence(
        LastVerification.of(json.loads(json.dumps(verified(*results))), NOON_MS, None) if results else None,
        None if rehearsal is None else LastRehearsal.of(rehearsal),
    )


def measured(metrics: MetricStore) -> dict[str, dict[tuple[str, ...], object]]:
    return {
        instrument.name: {tuple(value for _, value in point.attributes): point.value for point in points}
        for instrument, points in metrics.points()
    }


def test_metrics_are_those_of_the_last_verification_and_rehearsal() -> None:
    metrics = MetricStore()
    record_evidence(metrics, "f", evidence(*DIFFERENT, rehearsal=rehearsed()))
    found = measured(metrics)
    assert found["mirror.verify.equal.timestamp"] == {("f",): 0}, "none has found everything equal"
    assert found["mirror.verify.differences"] == {("f", "missing"): 3}
    assert found["mirror.verify.unknown.partitions"] == {("f",): 1}
    assert found["mirror.verify.incomplete.partitions"] == {("f",): 2}
    assert found["mirror.verify.offsets"] == {("f", "orders"): 77}
    assert found["mirror.rehearsal.timestamp"] == {("f",): NOON_MS / 1000}
    assert found["mirror.rehearsal.blockers"] == {("f",): 0}
    assert (found["mirror.recovery.point"], found["mirror.recovery.time"]) == ({("f",): 90.0}, {("f",): 12.5})
    blocker = Blocker(kind=Kind.TOPIC, name="a.orders", reason="it is not there", action="create it")
    record_evidence(metrics, "f", evidence(*EQUAL, rehearsal=rehearsed(blockers=[blocker], recovery=RecoveryTime())))
    found = measured(metrics)
    assert found["mirror.verify.equal.timestamp"] == {("f",): NOON_MS / 1000}
    assert found["mirror.verify.differences"] == {("f", "none"): 0}
    assert found["mirror.verify.offsets"] == {("f", "orders"): 100, ("f", "clicks"): 5}
    assert found["mirror.rehearsal.blockers"] == {("f",): 1}
    assert not found.get("mirror.recovery.time"), "it is not known"


def shown(found: Evidence) -> str:
    return words(document(runs.view([runs.healthy()], evidence=found)).text)


def test_report_has_the_last_verification_and_rehearsal() -> None:
    blocker = Blocker(kind=Kind.ACL, name="topic orders", reason="Read is missing", action="grant it")
    text = shown(evidence(*DIFFERENT, rehearsal=rehearsed(blockers=[blocker])))
    assert ": 1 of 3 partitions equal" in text
    assert "differing records: missing 3" in text
    assert "not complete: 2 partitions" in text
    assert "orders 1 different 7 3 missing" in text
    assert "orders 2 unknown \u2013 no leader" in text
    assert "last found equal: never" in text
    assert ": not ready" in text
    assert "recovery point: 1 min 30 s, at most 40 records not arrived" in text
    assert "recovery time: 12.5 s" in text
    assert "acl topic orders Read is missing" in text


def test_report_says_that_nothing_could_be_compared() -> None:
    silent = LastVerification.of(verified(error="no broker answers"), NOON_MS, None)
    text = shown(Evidence(silent))
    assert ": nothing could be compared no broker answers" in text


def test_report_of_a_flow_without_evidence_has_no_place_for_it() -> None:
    assert "Proofs and rehearsals" not in shown(Evidence())
