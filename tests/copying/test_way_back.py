"""A consumer fails over to the target, reads on there, and comes back to the source. Real clusters, confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition

from mirror.groups.decision import Reason
from tests.copying.pair import End, TwoClusters
from tests.copying.test_groups import (
    _asked,
    _at,
    _commit,
    _committed,
    _consumer,
    _group_sync,
    _only,
    _records,
    _values,
    _written,
)
from tests.copying.writers import batch_of, write_batches

pytestmark = pytest.mark.brokers

_RECORDS: Final = 250


@pytest.fixture
def name(unique: Callable[[str], str]) -> str:
    return unique("g.billing")


@pytest.fixture
def topic(pair: TwoClusters) -> str:
    """250 records, at other offsets on the target, where 33 were before."""
    topic = pair.topics()
    write_batches(pair.target.address, topic, [batch_of(_records(1_000, 33))])
    _written(pair, topic, 0, _RECORDS)
    pair.complete(topic, start_over=True)
    return topic


def _read(end: End, group: str, topic: str, count: int, committed: int) -> list[bytes]:
    """What a consumer of ``group`` reads from its position on; it commits behind the first ``committed`` of them."""
    with _consumer(end, group, auto_offset_reset="earliest") as consumer:
        at = _committed(end, group, topic)[0]
        consumer.assign([ConfluentPartition(topic, 0, max(0, at))])
        messages: list[Any] = []
        while len(messages) < count:
            messages += consumer.consume(count - len(messages), timeout=1)
        consumer.commit(message=messages[committed - 1], asynchronous=False)
        return [message.value() for message in messages]


def _expected(first: int, count: int) -> list[bytes]:
    return [b"v%d" % number for number in range(first, first + count)]


def test_a_consumer_fails_over_and_back_with_no_record_skipped(
    pair: TwoClusters, topic: str, name: str, tmp_path: Path
) -> None:
    assert _read(pair.source, name, topic, 120, committed=100) == _expected(0, 120)
    with _group_sync(pair, topic) as sync:
        assert _only(sync, name).reason is None
        # The source is lost after 20 more records were committed there: only these are read again.
        _commit(pair.source, name, topic, 120)
        assert _read(pair.target, name, topic, 60, committed=50) == _expected(100, 60)
        assert _only(sync, name).reason is Reason.TAKEN_OVER
        status, found = _asked(pair, tmp_path, topic, name, "--reverse")
        (back,) = found["positions"]
        assert (status, back["pending"], back["written"], back["source_offset"]) == (3, True, False, 150)
        assert _committed(pair.source, name, topic)[0] == 120, "nothing is written without --commit"
        status, found = _asked(pair, tmp_path, topic, name, "--reverse", "--commit")
        (back,) = found["positions"]
        assert (status, back["written"], back["committed_source_offset"], found["problems"]) == (0, True, 150, [])
        # The ten that were read, and not committed, on the target.
        assert _read(pair.source, name, topic, 100, committed=90) == _expected(150, 100)
        # The forward sync has undone nothing, and follows the group again.
        assert _only(sync, name).reason is None
    assert _committed(pair.source, name, topic)[0] == 240
    assert _committed(pair.target, name, topic)[0] == _at(pair, topic, 240)
    with _consumer(pair.target, name) as consumer:
        consumer.assign([ConfluentPartition(topic, 0, _committed(pair.target, name, topic)[0])])
        assert _values(consumer, 10) == _expected(240, 10)


def test_records_that_were_written_on_the_target_only_are_said(
    pair: TwoClusters, topic: str, name: str, tmp_path: Path
) -> None:
    write_batches(pair.target.address, topic, [batch_of(_records(2_000, 10))])
    _commit(pair.target, name, topic, _at(pair, topic, 2_003))
    status, found = _asked(pair, tmp_path, topic, name, "--reverse", "--commit")
    (back,) = found["positions"]
    assert (status, back["place"], back["written"]) == (0, "end", True)
    assert back["not_on_source"] == {"in_front": 3, "behind": 7}
    assert _committed(pair.source, name, topic)[0] == _RECORDS
    _written(pair, topic, _RECORDS, 10)
    assert _read(pair.source, name, topic, 10, committed=10) == _expected(_RECORDS, 10)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_on_the_source_keeps_its_position(
    pair: TwoClusters, topic: str, name: str, tmp_path: Path, protocol: str
) -> None:
    _commit(pair.target, name, topic, _at(pair, topic, 200))
    with _consumer(pair.source, name, group_protocol=protocol, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        assert _values(consumer, 1) == [b"v0"]
        status, found = _asked(pair, tmp_path, topic, name, "--reverse", "--commit")
    assert (status, found["positions"][0]["reason"]) == (3, "active-on-source")
    assert _committed(pair.source, name, topic)[0] < 0
    status, found = _asked(pair, tmp_path, topic, name, "--reverse", "--commit")
    assert (status, _committed(pair.source, name, topic)[0]) == (0, 200)
