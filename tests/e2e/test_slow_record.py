"""The walk of a record that was copied late is in the trace of its producer, in a real trace store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mirror.sandbox.cluster import Cluster
from tests.campaign.stores.slow_record import SLOW_MS, STANDS_STILL_S, walk
from tests.campaign.stores.zipkin import Zipkin, zipkin
from tests.e2e.broker_side import Side
from tests.polling import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Zipkin]:
    with zipkin(tmp_path) as started:
        yield started


def test_one_trace_leads_from_the_producer_over_the_copy_to_the_consumer(
    tmp_path: Path, source: Side, store: Zipkin
) -> None:
    with Cluster() as target:
        spans = {span.name: span for span in walk(tmp_path, source, target, store)}
    produced, record, append = spans["send orders"], spans["mirror.record"], spans["mirror.record.append"]
    assert record.parent == produced.id
    assert {spans[f"mirror.record.{part}"].parent for part in ("fetch", "hold", "append")} == {record.id}
    assert spans["process paris.orders"].parent == produced.id, "the record's header is the producer's"
    assert record.attributes["mirror.latency_ms"] >= SLOW_MS
    assert append.ended_ms - append.began_ms >= SLOW_MS, f"the target stood still for {STANDS_STILL_S} s"
    assert (append.attributes["messaging.destination.name"], append.attributes["messaging.kafka.offset"]) == (
        "paris.orders",
        1,
    )
    eventually(lambda: len(store.traces("mirror.topic=orders")) == 1, within_s=10, what="the trace in the store")
    (trace,) = store.traces("mirror.topic=orders")
    assert {span["name"] for span in trace} == spans.keys()
