"""Plain idempotent batches behind a transaction without data, as the leader of a partition takes and refuses them.

Every case on the fake and on real brokers, for both transaction protocols (KIP-98, KIP-360, KIP-890, KIP-1228).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirror.cluster.types import TopicPartition
from tests.conformance.raw_brokers import (
    Identity,
    RawProducer,
    Wire,
    create_topic,
    known_producers,
    log_of,
    shape,
)

DAY_MS = 86_400_000


@pytest.fixture
def tp(wire: Wire, unique: Callable[[str], str]) -> TopicPartition:
    (one,) = create_topic(wire, unique("orders"))
    return one


@pytest.fixture
def producer(wire: Wire, unique: Callable[[str], str]) -> RawProducer:
    return RawProducer(wire, unique("txn"))


def _fenced(producer: RawProducer, tp: TopicPartition) -> Identity:
    """The fence's identity, once its marker is in the log."""
    who = producer.fence(tp)
    wire = producer.wire
    wire.until(lambda: known_producers(wire, tp).get(who.producer_id) == (who.epoch, -1))
    return who


def _next(who: Identity, epochs: int = 1) -> Identity:
    return Identity(who.producer_id, who.epoch + epochs)


def test_fence_writes_a_marker_and_has_plain_batches_seen_at_once(producer: RawProducer, tp: TopicPartition) -> None:
    who, wire = _fenced(producer, tp), producer.wire
    assert who.epoch == (0 if wire.level == 1 else 1), "version 1: the transaction's epoch; version 2: the one after it"
    assert [producer.append(who, tp, sequence, 10) for sequence in (0, 10, 20)] == [(0, 1), (0, 11), (0, 21)]
    assert shape(wire, tp) == [("commit", who.epoch), *[("data", who.epoch)] * 3]
    assert log_of(wire, tp)[1] == 31, "the last stable offset: nothing is open"
    assert known_producers(wire, tp)[who.producer_id] == (who.epoch, 29)


def test_older_attempt_is_refused_after_the_next_fence(producer: RawProducer, tp: TopicPartition) -> None:
    first = _fenced(producer, tp)
    assert [producer.append(first, tp, sequence) for sequence in (0, 1)] == [(0, 1), (0, 2)]
    second = _fenced(producer, tp)
    assert second.epoch > first.epoch
    assert {producer.append(first, tp, sequence)[0] for sequence in (0, 1, 2, 5)} == {47}, "known, next and any other"
    assert [producer.append(second, tp, sequence)[0] for sequence in (2, 1, 0)] == [45, 45, 0], "it begins with 0"
    assert {producer.append(first, tp, sequence)[0] for sequence in (0, 2)} == {47}


def test_batch_of_the_last_five_is_known_and_older_or_later_ones_are_out_of_order(
    producer: RawProducer, tp: TopicPartition
) -> None:
    who = _fenced(producer, tp)
    for number in range(6):
        assert producer.append(who, tp, 2 * number, 2) == (0, 1 + 2 * number)
    assert [producer.append(who, tp, 2 * number, 2) for number in (5, 3, 1)] == [(0, 11), (0, 7), (0, 3)]
    assert producer.append(who, tp, 0, 2)[0] == 45, "no longer among the last five"
    assert producer.append(who, tp, 10, 1)[0] == 45, "cut otherwise"
    assert producer.append(who, tp, 14, 2)[0] == 45, "skips two"
    assert producer.append(who, tp, 12, 2) == (0, 13)


def test_later_epoch_needs_no_marker_and_begins_with_0(producer: RawProducer, tp: TopicPartition) -> None:
    who = _fenced(producer, tp)
    assert producer.append(who, tp, 0) == (0, 1)
    assert producer.append(_next(who), tp, 1)[0] == 45
    assert producer.append(_next(who), tp, 0) == (0, 2)
    assert producer.append(who, tp, 1)[0] == 47


def test_unknown_producer_may_begin_with_any_sequence_and_epoch(producer: RawProducer, tp: TopicPartition) -> None:
    who = Identity(producer.init().producer_id, 7)
    assert [producer.append(who, tp, sequence)[0] for sequence in (123, 125, 124)] == [0, 45, 0]
    assert producer.append(Identity(who.producer_id, 6), tp, 0)[0] == 47


def test_fence_of_the_coordinator_refuses_older_plain_batches_once_its_marker_is_written(
    producer: RawProducer, tp: TopicPartition
) -> None:
    """Also the abort of an older attempt's open transaction raises the epoch."""
    who = _fenced(producer, tp)
    assert producer.append(who, tp, 0) == (0, 1)
    producer.begin(who, tp)
    newer = producer.init()
    assert newer.epoch == who.epoch + 2
    producer.wire.until(lambda: known_producers(producer.wire, tp)[who.producer_id] == (who.epoch + 1, -1))
    assert producer.append(who, tp, 1)[0] == 47


def test_marker_of_an_epoch_that_is_there_already_is_written_too(producer: RawProducer, tp: TopicPartition) -> None:
    """As a repeated one: only a transaction that is open in that epoch would stand against it (KIP-1228)."""
    who, wire = producer.init(), producer.wire
    producer.begin(who, tp)
    marked = _next(who, wire.level - 1)
    assert [producer.append(marked, tp, sequence)[0] for sequence in (0, 1)] == [0, 0]
    assert producer.end(who, commit=True).error_code == 0
    wire.until(lambda: len(shape(wire, tp)) == 3)
    assert known_producers(wire, tp)[who.producer_id] == (marked.epoch, 1), "the sequence goes on"
    assert producer.append(marked, tp, 2)[0] == 0
    assert producer.init().epoch > who.epoch


def test_marker_of_an_epoch_below_the_known_one_is_refused_and_its_transaction_never_ends(
    producer: RawProducer, tp: TopicPartition
) -> None:
    who, wire = producer.init(), producer.wire
    producer.begin(who, tp)
    later = _next(who, wire.level)
    assert producer.append(later, tp, 0)[0] == 0
    assert producer.end(who, commit=True).error_code == 0
    codes: list[int] = []

    def asked_often() -> bool:
        codes.append(producer.init_once().error_code)
        return len(codes) == 20

    wire.until(asked_often)
    assert set(codes) == {51}
    assert shape(wire, tp) == [("data", later.epoch)]


def test_state_expires_by_the_newest_timestamp_of_the_last_batch(producer: RawProducer, tp: TopicPartition) -> None:
    who, wire = _fenced(producer, tp), producer.wire
    other = Identity(who.producer_id + 10_000, 0)
    assert producer.append(other, tp, 0)[0] == 0
    assert producer.append(who, tp, 0, age_ms=DAY_MS + 60_000)[0] == 0
    wire.until(lambda: who.producer_id not in known_producers(wire, tp))
    assert other.producer_id in known_producers(wire, tp)
    assert producer.append(Identity(who.producer_id, 0), tp, 77)[0] == 0, "any sequence and epoch"


def test_state_is_kept_while_a_batch_is_younger(producer: RawProducer, tp: TopicPartition) -> None:
    who, wire = _fenced(producer, tp), producer.wire
    old = Identity(who.producer_id + 10_000, 0)
    assert producer.append(who, tp, 0, age_ms=DAY_MS + 60_000)[0] == 0
    assert producer.append(who, tp, 1, age_ms=DAY_MS - 60_000)[0] == 0
    assert producer.append(old, tp, 0, age_ms=DAY_MS + 60_000)[0] == 0
    wire.until(lambda: old.producer_id not in known_producers(wire, tp))
    assert producer.append(who, tp, 3)[0] == 45


def test_with_log_append_time_the_state_does_not_depend_on_timestamps(
    producer: RawProducer, tp: TopicPartition, unique: Callable[[str], str]
) -> None:
    (stamped,) = create_topic(producer.wire, unique("stamped"), message_timestamp_type="LogAppendTime")
    who, wire = _fenced(producer, stamped), producer.wire
    old = Identity(who.producer_id + 10_000, 0)
    began_ms = wire.unix_ms()
    assert producer.append(who, stamped, 0, age_ms=10 * DAY_MS)[0] == 0
    assert producer.append(old, tp, 0, age_ms=10 * DAY_MS)[0] == 0
    wire.until(lambda: old.producer_id not in known_producers(wire, tp))
    assert known_producers(wire, stamped)[who.producer_id] == (who.epoch, 0)
    (one,) = [one for one in log_of(wire, stamped)[0] if not one.is_control]
    assert one.has_log_append_time
    assert began_ms <= one.max_timestamp <= wire.unix_ms()
    one.verify()


def test_plain_batch_within_an_open_transaction_is_refused(producer: RawProducer, tp: TopicPartition) -> None:
    who = _fenced(producer, tp)
    assert producer.append(who, tp, 0)[0] == 0
    producer.write(who, tp, 1)
    assert producer.append(who, tp, 2)[0] == 48
    assert producer.end(who, commit=True).error_code == 0
    wire, ended = producer.wire, _next(who, producer.wire.level - 1)
    wire.until(lambda: shape(wire, tp)[-1] == ("commit", ended.epoch))
    sequence = 2 if wire.level == 1 else 0
    assert producer.append(ended, tp, sequence)[0] == 0
