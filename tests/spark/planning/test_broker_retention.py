"""How long the target keeps progress, as a run reads it again and again. Brokers in memory."""

from __future__ import annotations

from mirror.observation import Side
from mirror.spark.planning.broker_retention import recommit_after_ms
from tests.fakes.admin import FakeAdmin
from tests.fakes.cluster import FakeCluster

DAY_MS = 24 * 60 * 60 * 1000


def test_a_cluster_that_does_not_answer_has_kafka_s_default_until_it_does() -> None:
    """An outage of a minute ends no run, also if the run has met it before."""
    cluster = FakeCluster(1)
    cluster.admin.broker_configs[""] = {"offsets.retention.minutes": "70"}
    side = Side("b", FakeAdmin(cluster), timeout_ms=1_000)
    cluster.kill(1)
    assert recommit_after_ms(side) == DAY_MS
    cluster.start(1)
    assert recommit_after_ms(side.again()) == 600_000
