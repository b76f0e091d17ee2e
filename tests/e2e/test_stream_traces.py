"""The traces and metrics of `mirror stream` at a backend: its tasks export theirs, and the driver the rest."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from mirror.telemetry.metrics.instruments import (
    COMMIT_DURATION,
    PERIOD_DURATION,
    PHASES,
    PLAN_DURATION,
    REQUEST_DURATION,
)
from tests.e2e.broker_side import Side
from tests.e2e.feed import Feed
from tests.e2e.site import Site, flow
from tests.polling import eventually
from tests.telemetry import receiver

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(600)]

METRICS = {one.name for one in (COMMIT_DURATION, PERIOD_DURATION, PHASES, PLAN_DURATION, REQUEST_DURATION)}


def test_each_period_of_a_stream_is_one_tree_of_spans_and_its_metrics_arrive_meanwhile(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    topic = unique("traced")
    source.create(topic, 2)
    site.write({"a": source.address, "b": target.address}, {"f": flow("a", "b", [topic], "period-ms = 4000")})
    with receiver.http() as (address, taken):
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": address,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        }
        child = site.start(command="stream", environ=environ)
        with Feed(source, topic, 2, 50):
            eventually(lambda: len(taken.named("mirror.task")) > 2, within_s=200, what="tasks in periods")
            eventually(lambda: taken.metrics.keys() >= METRICS, within_s=60, what="metrics")
        child.send_signal(signal.SIGTERM)
        run = site.finish(child)
    assert run.status == 0, run
    partitions = taken.named("mirror.partition")
    # An exporter whose connection breaks sends again: stores know a span by its id.
    exported = {(span.id, span.resource["process.pid"]) for span in taken.spans}
    assert len({span for span, _ in exported}) == len(exported), "the driver exports nothing of its tasks"
    assert len({span.id for span in partitions}) > 2
    by_id = {span.id: span for span in taken.spans}
    for span in partitions:
        task = by_id[span.parent]
        period = by_id[task.parent]
        assert [task.name, period.name] == ["mirror.task", "mirror.period"]
        assert span.trace == task.trace == period.trace
        assert task.began_ms <= span.began_ms <= span.ended_ms <= task.ended_ms
    assert sum(span.attributes.get("mirror.phase.producing_ms", 0) for span in partitions) > 0
    assert {span.attributes["mirror.partition"] for span in partitions} == {0, 1}
