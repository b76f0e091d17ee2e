"""Gaps in the source: the copy names them and fails, or skips and counts them if the flow allows it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from mirror.relay.model.ranges import OPEN_END, Outcome, Range, RangeResult
from mirror.relay.partition.across_attempts import retry
from mirror.relay.progress.gaps import GapKind
from mirror.wire.records import Batch
from tests.copying.gaps import keys, numbered, put, refused
from tests.copying.pair import TwoClusters
from tests.copying.writers import batch_of, made, write_batches
from tests.polling import eventually
from tests.relay.stopping import RUN, stopped_after

pytestmark = pytest.mark.brokers

DELIVERIES = pytest.mark.parametrize(
    "exactly_once",
    [pytest.param(True, id="exactly once"), pytest.param(False, id="at least once", marks=pytest.mark.cluster)],
)


@DELIVERIES
def test_deleted_records_are_a_retention_gap(pair: TwoClusters, exactly_once: bool) -> None:
    topic = pair.topics()
    put(pair, topic, 0, 50)
    pair.complete(topic, exactly_once=exactly_once)
    put(pair, topic, 50, 50)
    pair.source.delete_records(topic, 75)
    refused(pair, topic, GapKind.RETENTION, exactly_once=exactly_once)
    (result,) = pair.complete(topic, exactly_once=exactly_once, on_gap="skip")
    assert (result.start, result.end, result.records) == (50, 100, 25)
    assert result.gaps == {GapKind.RETENTION: 25}
    assert keys(pair, topic) == numbered(range(50), range(75, 100))


def test_segments_deleted_by_retention_are_a_gap(pair: TwoClusters) -> None:
    """Retention deletes the whole log, which then begins where it ended."""
    topic = pair.topics()
    put(pair, topic, 0, 100)
    pair.complete(pair.ranges(topic, end=40))
    pair.source.configure(topic, retention_ms=1_000)
    eventually(lambda: pair.source.earliest(topic) == 100, what="the old records are deleted")
    refused(pair, topic, GapKind.RETENTION)
    pair.source.configure(topic, retention_ms=-1)
    put(pair, topic, 100, 20)
    (result,) = pair.complete(topic, on_gap="skip")
    assert (result.records, result.gaps) == (20, {GapKind.RETENTION: 60})
    assert keys(pair, topic) == numbered(range(40), range(100, 120))


@contextmanager
def slow_copy(pair: TwoClusters, topic: str, **policy: Any) -> Iterator[list[RangeResult]]:
    """Copy in another thread, at 200 KB a second; the results are complete when the block ends."""
    options = {"max.partition.fetch.bytes": 50_000, "fetch.max.bytes": 50_000}
    with copying(pair, pair.ranges(topic), reading=options, max_bytes_per_second=200_000, **policy) as results:
        yield results


@contextmanager
def copying(pair: TwoClusters, ranges: list[Range], **options: Any) -> Iterator[list[RangeResult]]:
    """Copy in another thread; the results are complete when the block ends."""
    results = list[RangeResult]()

    def run() -> None:
        results.extend(pair.copy(ranges, **options))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield results
    finally:
        thread.join(50)
    assert results, "the copy does not end"


def large(first: int, count: int) -> list[Batch]:
    """Make batches of 50 KB, with ten records each."""
    return [batch_of(made(10, first=first_of_batch, size=5_000)) for first_of_batch in range(first, first + count, 10)]


@DELIVERIES
def test_retention_during_the_copy_is_skipped_and_counted(pair: TwoClusters, exactly_once: bool) -> None:
    topic = pair.topics()
    write_batches(pair.source.address, topic, large(0, 400))
    with slow_copy(pair, topic, on_gap="skip", exactly_once=exactly_once) as results:
        eventually(lambda: pair.target.end(topic) > 20, what="the copy has begun")
        pair.source.delete_records(topic, 350)
    (result,) = results
    assert result.outcome is Outcome.COMPLETE, result.error
    lost = result.gaps[GapKind.RETENTION]
    assert lost > 100
    assert (result.records, result.end) == (400 - lost, 400)
    assert keys(pair, topic) == numbered(range(350 - lost), range(350, 400))


def test_retention_during_a_copy_that_must_not_skip_fails_it(pair: TwoClusters) -> None:
    topic = pair.topics()
    write_batches(pair.source.address, topic, large(0, 400))
    with slow_copy(pair, topic) as results:
        eventually(lambda: pair.target.end(topic) > 20, what="the copy has begun")
        pair.source.delete_records(topic, 350)
    (result,) = results
    assert result.outcome is Outcome.FAILED
    assert f"{GapKind.RETENTION}: copied up to offset {result.end}, but the source begins at 350" in str(result.error)
    assert result.end == pair.target.progress(pair.flow, topic) < 350
    assert keys(pair, topic) == numbered(range(result.end))


@DELIVERIES
def test_recreated_topic_is_a_gap(pair: TwoClusters, exactly_once: bool) -> None:
    """The new topic has more records than were copied, so that offsets alone would not show it."""
    topic = pair.topics()
    put(pair, topic, 0, 50)
    pair.complete(topic, exactly_once=exactly_once)
    recreate(pair, topic)
    put(pair, topic, 1000, 80)
    result = refused(pair, topic, GapKind.RECREATED, exactly_once=exactly_once)
    assert "deleted and made again" in str(result.error)
    (result,) = pair.complete(topic, exactly_once=exactly_once, on_gap="skip")
    assert (result.records, result.end) == (80, 80)
    assert set(result.gaps) == {GapKind.RECREATED}
    assert keys(pair, topic) == numbered(range(50), range(1000, 1080))
    (result,) = pair.complete(topic, exactly_once=exactly_once)
    assert result.records == 0


def recreate(pair: TwoClusters, topic: str) -> None:
    pair.source.delete(topic)
    eventually(lambda: topic not in pair.source.topics(), what=f"{topic} is deleted")
    pair.source.create(topic)


@pytest.mark.parametrize("on_gap", [pytest.param("fail", marks=pytest.mark.cluster), "skip"])
def test_topic_recreated_during_the_copy_is_a_gap(pair: TwoClusters, on_gap: str) -> None:
    topic = pair.topics()
    write_batches(pair.source.address, topic, large(0, 400))
    with slow_copy(pair, topic, on_gap=on_gap) as results:
        eventually(lambda: pair.target.end(topic) > 20, what="the copy has begun")
        recreate(pair, topic)
        put(pair, topic, 1000, 80)
    (result,) = results
    found = keys(pair, topic)
    copied = found.index(b"k1000") if b"k1000" in found else len(found)
    assert found[:copied] == numbered(range(copied))
    if on_gap == "fail":
        assert result.outcome is Outcome.FAILED
        assert GapKind.RECREATED in str(result.error)
        assert copied == result.end == pair.target.progress(pair.flow, topic)
        return
    # The new topic may have had no records yet: then the copy ended with what there was.
    assert result.outcome is Outcome.COMPLETE, result.error
    assert set(result.gaps) == {GapKind.RECREATED}
    pair.complete(topic)
    assert keys(pair, topic) == numbered(range(copied), range(1000, 1080))


@DELIVERIES
@pytest.mark.parametrize("on_gap", ["fail", "skip"])
def test_topic_recreated_after_the_plan_is_a_gap(pair: TwoClusters, on_gap: str, exactly_once: bool) -> None:
    """The plan and the progress agree on a topic that does not exist any more, and the new log is longer."""
    topic = pair.topics()
    put(pair, topic, 0, 50)
    pair.complete(topic, exactly_once=exactly_once)
    put(pair, topic, 50, 30)
    plan = pair.ranges(topic)
    recreate(pair, topic)
    put(pair, topic, 1000, 100)
    (result,) = pair.copy(plan, on_gap=on_gap, exactly_once=exactly_once)
    if on_gap == "fail":
        assert (result.outcome, result.records, result.end) == (Outcome.FAILED, 0, 50)
        assert f"{GapKind.RECREATED}: copied up to offset 50" in str(result.error)
        assert keys(pair, topic) == numbered(range(50))
        return
    assert (result.outcome, result.end, result.gaps) == (Outcome.COMPLETE, 80, {GapKind.RECREATED: 0}), result.error
    (result,) = pair.complete(topic, on_gap="fail", exactly_once=exactly_once)
    assert (result.start, result.end) == (80, 100)
    assert keys(pair, topic) == numbered(range(50), range(1000, 1100))


def test_first_copy_reads_only_the_planned_topic(pair: TwoClusters) -> None:
    topic = pair.topics()
    put(pair, topic, 0, 50)
    plan = pair.ranges(topic, start=20)
    recreate(pair, topic)
    put(pair, topic, 1000, 100)
    (result,) = pair.copy(plan)
    assert result.outcome is Outcome.FAILED
    assert f"{GapKind.RECREATED}: copied up to offset 20" in str(result.error)
    assert keys(pair, topic) == []


@pytest.mark.parametrize("on_gap", ["fail", pytest.param("skip", marks=pytest.mark.cluster)])
def test_recreated_topic_is_named_never_resumed_between_two_attempts(
    pair: TwoClusters, monkeypatch: pytest.MonkeyPatch, on_gap: str
) -> None:
    """A stream retries while the new log grows beyond the offsets of the former one."""
    monkeypatch.setattr(retry, "FAILURE_BACKOFF_MS", 500)
    topic = pair.topics()
    put(pair, topic, 0, 50)
    followed = [replace(copied, end=OPEN_END) for copied in pair.ranges(topic)]
    stopping = stopped_after(15, pair.target.address, pair.flow)
    with stopping, copying(pair, followed, on_gap=on_gap, run=RUN) as results:
        eventually(lambda: pair.target.progress(pair.flow, topic) == 50, what="all is copied")
        recreate(pair, topic)
        put(pair, topic, 1000, 30)
        put(pair, topic, 1030, 70)
    (result,) = results
    if on_gap == "fail":
        assert result.outcome is Outcome.FAILED
        assert f"{GapKind.RECREATED}: copied up to offset 50" in str(result.error)
        assert (result.records, pair.target.progress(pair.flow, topic)) == (50, 50)
        assert result.retries > 2
        assert keys(pair, topic) == numbered(range(50))
        return
    assert (result.outcome, result.end, set(result.gaps)) == (Outcome.COMPLETE, 100, {GapKind.RECREATED}), result.error
    assert keys(pair, topic) == numbered(range(50), range(1000, 1100))
