"""What a writer of a flow's own topics says if the target does not answer."""

from __future__ import annotations

import pytest

from mirror.errors import DeliveryTimeout, KafkaTimeout, NeedsAbort, is_outage
from mirror.producer.settings import ProducerSettings
from mirror.relay.progress.fenced_writer import FencedWriter, transactional_id
from mirror.relay.progress.flow_topic import FlowTopic, inventory_topic_of
from tests.runtime.listener import Listener


def test_a_timeout_has_the_cause_and_no_advice_for_callers_of_the_producer() -> None:
    listener = Listener(hang_up=True)
    try:
        topic = FlowTopic({"bootstrap.servers": listener.address}, inventory_topic_of("f"))
        with pytest.raises(KafkaTimeout) as failed:
            FencedWriter(topic, transactional_id("f"), timeout_ms=300).begin()
    finally:
        listener.close()
    assert str(failed.value).startswith(
        "fencing earlier users of mirror.f.changes did not succeed within 300 ms: bootstrap server at"
        f" {listener.address}: "
    )
    assert "outcome" not in str(failed.value)


@pytest.mark.parametrize("own", [{}, {"request.timeout.ms": 5_000, "retry.backoff.ms": 1_000}])
def test_its_transactions_are_short_enough_for_strict_brokers(own: dict[str, object]) -> None:
    """Some have a ``transaction.max.timeout.ms`` of a minute, the default of Kafka's producer."""
    topic = FlowTopic({"bootstrap.servers": "any:1", **own}, inventory_topic_of("f"))
    options = FencedWriter(topic, transactional_id("f"), timeout_ms=20_000).options
    assert ProducerSettings.parse(options).transaction_timeout_ms <= 60_000


def test_a_batch_that_expired_is_the_error_of_its_transaction() -> None:
    """It shows an outage; an error that only asks for an abort shows none."""
    topic = FlowTopic({"bootstrap.servers": "any:1"}, inventory_topic_of("f"))
    writer = FencedWriter(topic, transactional_id("f"), timeout_ms=20_000)
    expired = DeliveryTimeout("a batch of 1 records was not acknowledged within 10100 ms")
    failed = NeedsAbort(f"the transaction failed, call abort_transaction(): {expired}")
    failed.__cause__ = expired
    with pytest.raises(DeliveryTimeout) as raised:
        writer._fail("storing records in", failed)
    assert is_outage(raised.value)
