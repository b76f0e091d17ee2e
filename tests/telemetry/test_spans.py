"""The tree of spans of a period."""

from __future__ import annotations

from dataclasses import replace

from mirror.relay.model.observer import SlowRecord
from mirror.relay.model.ranges import Outcome, Range
from mirror.telemetry.traces.ids import SpanId, partition_id, period_id, subspan_id, task_id
from mirror.telemetry.traces.spans import (
    EXPIRED,
    RECORD,
    Kind,
    PeriodFacts,
    TaskFacts,
    partition_span,
    period_spans,
    record_spans,
    task_span,
    task_spans,
)
from tests.telemetry.results import AT_MS, expired, result

PERIOD = period_id("f", "run-1", 3)
TASK = TaskFacts(
    period=PERIOD, flow="f", task=1, attempt=0, host="h", pid=7, began_ms=AT_MS + 50, ended_ms=AT_MS + 7_200
)


def an_epoch(*results: object) -> PeriodFacts:
    return PeriodFacts(
        id=PERIOD,
        flow="f",
        run="run-1",
        period=3,
        source="a",
        target="b",
        began_ms=AT_MS,
        ended_ms=AT_MS + 8_000,
        planned_ms=40,
        results=tuple(results),  # type: ignore[arg-type]  # results, all of them
    )


def test_ids_are_equal_in_every_process_and_differ_by_name() -> None:
    assert period_id("f", "run-1", 3) == PERIOD, "worked out, not drawn"
    ids = [
        PERIOD,
        period_id("f", "run-1", 4),
        period_id("f", "run-2", 3),
        period_id("g", "run-1", 3),
        task_id(PERIOD, 0, 0),
        task_id(PERIOD, 0, 1),
        task_id(PERIOD, 1, 0),
        partition_id(PERIOD, "t", 0, 0),
        partition_id(PERIOD, "t", 1, 0),
        partition_id(PERIOD, "t", 0, 1),
        subspan_id(partition_id(PERIOD, "t", 0, 0), "mirror.attempt", 5),
    ]
    assert len(set(ids)) == len(ids)
    assert all(0 < found.trace < 2**128 and 0 < found.span < 2**64 for found in ids)
    assert len({found.trace for found in ids[4:]} | {PERIOD.trace}) == 1


def test_trace_parent_survives_formatting_and_parsing() -> None:
    assert SpanId.parse(str(PERIOD)) == PERIOD
    for wrong in ("", "00-1-2-01", f"00-{0:032x}-{1:016x}-01", f"00-{1:032x}-{0:016x}-01", str(PERIOD) + " "):
        assert SpanId.parse(wrong) is None


def test_spans_form_one_tree() -> None:
    results = [result(0), expired(1)]
    spans = [*period_spans(an_epoch(*results)), *task_spans(TASK, results)]
    by_id = {span.id: span for span in spans}
    assert len(by_id) == len(spans)
    roots = [span for span in spans if span.parent is None]
    assert [span.name for span in roots] == ["mirror.period"]
    for span in spans:
        if span.parent is not None:
            parent = by_id[span.parent]
            assert parent.began_ms <= span.began_ms <= span.ended_ms <= parent.ended_ms, span.name
    assert [span.name for span in spans] == [
        "mirror.period",
        "mirror.plan",
        "mirror.task",
        "mirror.partition",
        "mirror.partition",
        "mirror.attempt",
    ]
    assert by_id[PERIOD].attributes["mirror.outcome"] == "expired"
    assert by_id[PERIOD].attributes["mirror.expiries"] == 1
    assert by_id[PERIOD].error == "too late"


def test_expiry_is_an_event_with_all_its_details() -> None:
    span = partition_span(TASK, expired(1))
    event = next(one for one in span.events if one.name == EXPIRED)
    assert event.time_ms == AT_MS + 6_100
    assert event.attributes == {
        "mirror.expiry.phase": "in flight",
        "mirror.expiry.cause": "not enough replicas",
        "mirror.expiry.age_ms": 6_000,
        "mirror.expiry.queued_ms": 1_000,
        "mirror.expiry.in_flight_ms": 5_000,
        "mirror.expiry.attempts": 3,
        "mirror.expiry.record_count": 0,
        "mirror.expiry.may_have_been_written": True,
        "mirror.expiry.start": 50,
        "mirror.expiry.end": 60,
    }
    retry = next(one for one in span.events if one.name == "mirror.retry")
    assert retry.attributes == {"mirror.attempt": 2, "mirror.error": "e", "mirror.backoff_ms": 90}


def test_partition_span_has_lag_rates_and_phases() -> None:
    attributes = partition_span(TASK, expired(1)).attributes
    assert attributes["mirror.lag.before"] == 100
    assert attributes["mirror.lag.after"] == 60
    assert attributes["mirror.lag.before_bytes"] == 100 * 5_000 // 40, "as large as those that were copied"
    assert attributes["mirror.lag.before_ms"] == 9_000
    assert attributes["mirror.phase.producing_ms"] == 6_900
    assert attributes["mirror.phase.producing.share"] == round(6_900 / 7_000, 4)
    assert attributes["mirror.rate.records"] == round(40 / 7, 3)
    assert attributes["messaging.system"] == "kafka"
    assert attributes["messaging.destination.partition.id"] == "1"


def test_epochs_of_an_unhealthy_partition_are_linked_to_its_first_and_previous_one() -> None:
    first, last = (partition_id(period_id("f", "run-1", period), "orders", 1, 0) for period in (1, 2))
    sick = expired(1, sick_since_ms=AT_MS - 60_000, sick_trace=str(first), last_trace=str(last))
    span = partition_span(TASK, sick)
    assert [(link.to, link.attributes["mirror.link"]) for link in span.links] == [
        (first, "sick.first"),
        (last, "sick.previous"),
    ]
    assert span.attributes["mirror.sick.trace"] == first.trace_hex, (
        "one search finds all periods of the unhealthy period"
    )
    begins = partition_span(TASK, expired(1))
    assert begins.attributes["mirror.sick.trace"] == PERIOD.trace_hex, "also the first period"
    assert "mirror.sick.trace" not in partition_span(TASK, result(1)).attributes
    second = expired(1, sick_trace=str(first), last_trace=str(first))
    assert len(partition_span(TASK, second).links) == 1, "the first is the last"


def test_traces_of_records_are_linked() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    span = partition_span(TASK, expired(1, traces=[parent]))
    assert [(str(link.to), link.attributes["mirror.link"]) for link in span.links] == [(parent, "record")]


def test_partition_span_has_its_way_if_it_is_known() -> None:
    known = partition_span(TASK, result(1, way="transactions", way_reason="the target topic is compacted"))
    assert known.attributes["mirror.way"] == "transactions"
    assert known.attributes["mirror.way.reason"] == "the target topic is compacted"
    assert not {"mirror.way", "mirror.way.reason"} & partition_span(TASK, result(1)).attributes.keys()


def test_partition_span_counts_what_the_target_had_lost() -> None:
    assert (
        partition_span(TASK, result(1, target_losses=[{"kind": "truncated"}])).attributes["mirror.target_losses"] == 1
    )
    assert "mirror.target_losses" not in partition_span(TASK, result(1)).attributes


def test_result_without_a_timeline_has_a_span() -> None:
    span = partition_span(TASK, result(0, Outcome.FAILED, error="no leader", timeline=None))
    assert (span.began_ms, span.ended_ms, span.error) == (TASK.began_ms, TASK.ended_ms, "no leader")


def test_expired_partition_that_is_not_complete_has_an_error() -> None:
    """A stream's period ends for all partitions: such a one is unfinished, not expired, and yet the one to check."""
    one = replace(expired(3), outcome=Outcome.UNFINISHED, error="the task ended before it was complete")
    span = partition_span(TASK, one)
    assert span.error == "a.orders-3: expired once, the last: not enough replicas (in flight)"
    assert task_span(TASK, [result(0), one]).error == span.error
    assert span.attributes["mirror.expired"] is True
    assert partition_span(TASK, replace(one, outcome=Outcome.COMPLETE, error=None)).error is None
    quiet = partition_span(TASK, result(0, Outcome.UNFINISHED))
    assert quiet.error is None
    assert "mirror.expired" not in quiet.attributes


RANGE = Range(
    flow="f", topic="orders", target_topic="a.orders", partition=3, start=0, end=9, source_cluster_id="a", topic_id="t"
)
PRODUCER = SpanId(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)
SLOW_RECORD = SlowRecord(
    trace=str(PRODUCER),
    offset=7,
    target_offset=1_007,
    appended_ms=AT_MS,
    received_ms=AT_MS + 400,
    sent_ms=AT_MS + 450,
    acknowledged_ms=AT_MS + 900,
)


def test_a_slow_record_has_its_way_in_the_trace_of_its_producer() -> None:
    partition = partition_id(PERIOD, "orders", 3, 0)
    whole, *parts = record_spans(partition, RANGE, SLOW_RECORD)
    assert (whole.name, whole.parent, whole.kind) == (RECORD, PRODUCER, Kind.CONSUMER)
    assert (whole.began_ms, whole.ended_ms) == (AT_MS, AT_MS + 900)
    assert [(link.to, link.attributes) for link in whole.links] == [(partition, {"mirror.link": "partition"})]
    assert whole.attributes["mirror.latency_ms"] == 900
    assert [(one.name.removeprefix(f"{RECORD}."), one.began_ms - AT_MS, one.ended_ms - AT_MS) for one in parts] == [
        ("fetch", 0, 400),
        ("hold", 400, 450),
        ("append", 450, 900),
    ]
    assert {one.parent for one in parts} == {whole.id}
    assert {one.id.trace for one in (whole, *parts)} == {PRODUCER.trace}
    assert len({one.id for one in (whole, *parts)} | {PRODUCER}) == 5
    fetch, _, append = parts
    name, offset = "messaging.destination.name", "messaging.kafka.offset"
    assert (fetch.attributes[name], fetch.attributes[offset], fetch.kind) == ("orders", 7, Kind.CLIENT)
    assert (append.attributes[name], append.attributes[offset], append.kind) == ("a.orders", 1_007, Kind.PRODUCER)


def test_a_record_whose_trace_is_none_has_no_spans() -> None:
    assert list(record_spans(PERIOD, RANGE, replace(SLOW_RECORD, trace="nonsense"))) == []


def test_no_part_of_a_records_way_is_negative_if_clocks_differ() -> None:
    ahead = replace(SLOW_RECORD, appended_ms=AT_MS + 5_000, offset=None)
    spans = list(record_spans(PERIOD, RANGE, ahead))
    assert all(one.began_ms <= one.ended_ms for one in spans)
    assert "messaging.kafka.offset" not in spans[0].attributes
