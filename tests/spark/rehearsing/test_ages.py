"""The timestamps of the first records that have not arrived. A real client, brokers in memory."""

from __future__ import annotations

import time

import pytest

from mirror.client import TopicPartition
from mirror.spark.rehearsing.ages import first_timestamps
from mirror.wire.records import TRANSACTIONAL
from tests.fakes.record_batches import MADE_MS, build
from tests.relay.fake_pair import FakePair

PARTITIONS = 3
WITHIN_MS = 500


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    return FakePair(monkeypatch, partitions=PARTITIONS)


def first(pair: FakePair, *starts: int, within_ms: int = WITHIN_MS) -> list[int | None]:
    """By partition."""
    ends = [pair.source.log("t", partition).end_offset for partition in range(PARTITIONS)]
    wanted = {TopicPartition("t", partition): (start, ends[partition]) for partition, start in enumerate(starts)}
    found = first_timestamps({"bootstrap.servers": pair.source.bootstrap}, wanted, within_ms)
    return [found.get(tp) for tp in wanted]


def test_the_first_record_from_the_offset_on_counts(pair: FakePair) -> None:
    for partition in range(PARTITIONS):
        for number in range(5):
            batch = build([b"1", b"2"], timestamp=MADE_MS + 100 * number + partition)
            pair.source.log("t", partition).append(batch)
    assert first(pair, 0, 4, 8) == [MADE_MS, MADE_MS + 201, MADE_MS + 402]


def test_an_aborted_record_is_not_the_first_one(pair: FakePair) -> None:
    log = pair.source.log("t")
    log.append(build([b"0"], timestamp=MADE_MS))
    log.append_values(b"1", attributes=TRANSACTIONAL, producer_id=7)
    log.end_transaction(7, commit=False)
    log.append(build([b"2"], timestamp=MADE_MS + 2))
    assert first(pair, 1) == [MADE_MS + 2]


def test_where_no_record_is_no_age_is_said(pair: FakePair) -> None:
    pair.source.log("t", 1).append(build([b"1"], timestamp=MADE_MS))
    assert first(pair, 0, 0) == [None, MADE_MS]
    assert first(pair) == []


def test_aborted_records_up_to_the_end_take_no_time(pair: FakePair) -> None:
    log = pair.source.log("t")
    log.append_values(b"1", attributes=TRANSACTIONAL, producer_id=7)
    log.end_transaction(7, commit=False)
    began_s = time.monotonic()
    assert first(pair, 0, within_ms=30_000) == [None]
    assert time.monotonic() - began_s < 20


def test_an_offset_that_is_gone_has_no_age(pair: FakePair) -> None:
    pair.source.log("t", 1).append(build([b"1"], timestamp=MADE_MS))
    assert first(pair, 5, 0) == [None, MADE_MS]


def test_a_source_that_does_not_answer_has_no_ages(pair: FakePair) -> None:
    pair.write(b"1")
    pair.source.kill(1)
    assert first(pair, 0) == [None]
