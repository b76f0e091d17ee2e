"""How long a producer waits for its batches, at a server that never responds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirror.client import Producer, TopicPartition
from mirror.errors import ClientClosed, DeliveryTimeout, KafkaTimeout
from tests.client_state import unanswered
from tests.fakes.cluster import FakeCluster
from tests.fakes.record_batches import batch, build
from tests.stalls import Stalls

TP = TopicPartition("t", 0)
TIMES = {"default.api.timeout.ms": 200, "request.timeout.ms": 300, "delivery.timeout.ms": 1_000}


@pytest.fixture
def producer(silent: str) -> Iterator[Producer]:
    producer = Producer({"bootstrap.servers": silent, **TIMES})
    yield producer
    producer.close(0)


def test_flush_and_close_wait_until_the_batch_has_its_outcome(producer: Producer) -> None:
    """Without a timeout of their own; that of other calls would end them first."""
    sent = producer.send_batch(TP, batch(build((b"one",))), block=False)
    producer.flush()
    assert isinstance(sent.exception(0), DeliveryTimeout)
    sent = producer.send_batch(TP, batch(build((b"two",))), block=False)
    producer.close()
    assert isinstance(sent.exception(0), DeliveryTimeout)


def test_flush_by_default_ends_a_request_timeout_after_every_delivery(producer: Producer, stalls: Stalls) -> None:
    unanswered(producer).add("a batch that never gets its outcome")
    with stalls.timing() as took, pytest.raises(KafkaTimeout, match="1 batches were not acknowledged within 1300 ms"):
        producer.flush()
    assert took.ms >= 1_290
    assert took.running_ms < 2_300
    unanswered(producer).answered("a batch that never gets its outcome")


@pytest.mark.parametrize("timeout_ms", [0, 250])
def test_flush_gives_up_after_its_timeout(timeout_ms: int, producer: Producer, stalls: Stalls) -> None:
    sent = [producer.send_batch(TP, batch(build((b"one",))), block=False) for _ in range(2)]
    with stalls.timing() as took, pytest.raises(KafkaTimeout, match=f"2 batches .* within {timeout_ms} ms"):
        producer.flush(timeout_ms)
    assert took.ms >= timeout_ms - 10
    assert took.running_ms < timeout_ms + 500
    assert not any(one.done() for one in sent), "they are still being sent"


def test_the_longest_delivery_timeout_overflows_nowhere(silent: str) -> None:
    with Producer({"bootstrap.servers": silent, "delivery.timeout.ms": 2**63 - 1}) as producer:
        unanswered(producer).add("a batch")
        with pytest.raises(KafkaTimeout):
            producer.flush(10)
        unanswered(producer).answered("a batch")
        assert producer._delivery_timer(None) == (2**63 - 1, 2**63 - 1)


def test_a_with_that_an_exception_leaves_reports_what_it_drops(silent: str, caplog: pytest.LogCaptureFixture) -> None:
    producer = Producer({"bootstrap.servers": silent, "client.id": "c"})
    sent = producer.send_batch(TP, batch(build((b"one",))), block=False)
    with pytest.raises(KeyError), producer:
        raise KeyError
    assert isinstance(sent.exception(0), ClientClosed)
    (logged,) = caplog.messages
    assert logged == (
        f"Producer(bootstrap.servers={silent!r}, client.id='c') is closed because of KeyError: "
        "1 batches without an acknowledgement are dropped"
    )


def test_a_with_that_an_exception_leaves_reports_its_open_transaction(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "t"})
    producer.init_transactions()
    producer.begin_transaction()
    with pytest.raises(KeyError), producer:
        raise KeyError
    (logged,) = caplog.messages
    assert logged.endswith("0 batches without an acknowledgement are dropped; its transaction is left open")


def test_a_with_that_drops_nothing_reports_nothing(silent: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyError), Producer({"bootstrap.servers": silent, "transactional.id": "t"}):
        raise KeyError
    assert caplog.messages == []
