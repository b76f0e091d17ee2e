"""What an acknowledgement tells, and an expiry as plain values."""

from __future__ import annotations

import dataclasses
import json
import pickle

import pytest

from mirror.errors import AcknowledgedRecordsLost, ConnectionFailed, DeliveryCause, DeliveryPhase, DeliveryTimeout
from mirror.producer.batch.batches import RecordMetadata
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeProducer
from tests.fakes.control import Action
from tests.producer.site import T0, T1, TIMES, expired, failure, finish, make_cluster, send


def test_what_acknowledged_it_reports_how_long_the_broker_wants_to_be_left_alone() -> None:
    cluster = make_cluster()
    producer = FakeProducer(cluster)
    cluster.control.on(Api.PRODUCE, Action(rewrite=lambda body: dataclasses.replace(body, throttle_time=70)))
    first, second = producer.send(T0, b"first"), producer.send(T0, b"second")
    assert producer.finish(first) == RecordMetadata(T0, 0, 0, 70)
    assert producer.finish(second) == RecordMetadata(T0, 1)
    assert producer.completed_ms - producer.answered_ms[first] >= 70


@pytest.mark.parametrize(("log_end", "is_lost"), [(0, False), (1, False), (2, True)])
def test_batch_that_is_acknowledged_below_the_known_end_fails(log_end: int, is_lost: bool) -> None:
    producer = FakeProducer(make_cluster())
    finish(producer, send(producer).future)
    made = producer.prepare(T0, b"second")
    made.log_end = log_end
    producer.send_batch(made)
    if is_lost:
        error = failure(producer, made.future)
        assert isinstance(error, AcknowledgedRecordsLost)
        assert (error.offset, error.log_end, error.may_have_been_written) == (1, 2, True)
    else:
        assert producer.finish(made.future) == RecordMetadata(T0, 1)


def test_every_produce_on_the_wire_asks_for_all_replicas() -> None:
    """Behaviour 12: the default is acks=all, and so it is where it is said."""
    for options in ({}, {"acks": "all"}, {"acks": "-1"}):
        producer = FakeProducer(make_cluster(), **options)
        finish(producer, *(producer.send(tp, b"x") for tp in (T0, T1)))
        assert {call.body.acks for call in producer.cluster.calls(Api.PRODUCE)} == {-1}


def test_each_record_of_a_batch_reports_so() -> None:
    cluster = make_cluster()
    producer = FakeProducer(cluster)
    cluster.control.on(Api.PRODUCE, Action(rewrite=lambda body: dataclasses.replace(body, throttle_time=70)))
    made, futures = producer.prepare_open(T0, b"a", b"b")
    producer.send_batch(made)
    producer.flush()
    result = [producer.finish(future) for future in futures]
    assert result == [RecordMetadata(T0, 0, 0, 70), RecordMetadata(T0, 0, 1, 70)]


def test_an_expiry_is_described_in_plain_values() -> None:
    cluster = make_cluster()
    producer = FakeProducer(cluster, **TIMES)
    cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.NOT_ENOUGH_REPLICAS}), times=None)
    error = expired(producer, send(producer))
    result = error.describe()
    assert json.loads(json.dumps(result)) == result
    assert result == {
        "phase": "queue",
        "cause": "not enough replicas",
        "age_ms": 5_000,
        "queued_ms": 5_000,
        "in_flight_ms": 0,
        "attempts": error.attempts,
        "record_count": 1,
        "last_error": str(error.last_error),
        "may_have_been_written": False,
    }
    assert error.attempts > 3
    assert "NOT_ENOUGH_REPLICAS" in str(result["last_error"])
    assert pickle.loads(pickle.dumps(error)).describe() == result  # noqa: S301 - its own


def test_so_is_one_of_somebody_elses_making() -> None:
    mine = DeliveryTimeout("late", age_ms=7, phase=DeliveryPhase.FENCING, cause=DeliveryCause.COORDINATOR)
    assert (mine.describe()["phase"], mine.describe()["cause"]) == ("fencing", "coordinator")
    assert mine.describe()["last_error"] is None
    gone = DeliveryTimeout("late", phase=DeliveryPhase.COMMITTING, last_error=ConnectionFailed("gone"))
    assert (gone.describe()["phase"], gone.describe()["last_error"]) == ("committing", "gone")
