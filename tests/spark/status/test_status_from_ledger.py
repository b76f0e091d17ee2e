"""What the status of a flow takes from the ledger: last errors, ways and obstacles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.relay.model.way import Way
from mirror.relay.progress.flow_topic import offset_topic_of
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.obstacles import Obstacle, TargetTopics
from mirror.telemetry.lag.lags import LagState
from tests.spark import fakes
from tests.spark.attempts import OLD, YOUNG, in_way, result
from tests.spark.flow_harness import configuration
from tests.spark.status_harness import T0, StatusHarness

if TYPE_CHECKING:
    from collections.abc import Iterable


def ways(site: StatusHarness, mode: str) -> list[tuple[str, str]]:
    site.config.write_text(f"{configuration()}{mode}\n")
    with site.watch() as watch:
        return [(one.way, one.way_reason) for one in watch.read().partitions]


def test_the_way_is_that_of_the_progress_and_its_reason_that_of_the_ledger(site: StatusHarness) -> None:
    site.a.add_topic("orders", [9, 9, 9, 9])
    for partition, way in enumerate((Way.SEQUENCES, Way.TRANSACTIONS, Way.SEQUENCES)):
        site.commit(5, partition, way=way)
    assert ways(site, 'exactly-once-by = "auto"') == [
        ("sequences", ""),
        ("transactions", ""),
        ("sequences", ""),
        ("", ""),
    ]
    ledger = Ledger.open(site.report, "f", "run")
    ledger.write_attempts([in_way(0, "sequences", YOUNG), in_way(2, "transactions", OLD)])
    last = [
        in_way(0, "sequences", "of a later attempt", 1),
        in_way(0, "sequences", YOUNG),
        in_way(1, "transactions", OLD),
    ]
    ledger.write_attempts([*last, in_way(2, "transactions", OLD)], 1)
    assert ways(site, 'exactly-once-by = "auto"') == [
        ("sequences", "of a later attempt"),
        ("transactions", OLD),
        ("sequences", ""),
        ("", ""),
    ], "the ledger is older than the progress of the third partition"


def test_the_reason_of_a_fixed_way_is_the_flow(site: StatusHarness) -> None:
    site.a.add_topic("orders", [9, 9])
    site.commit(5, way=Way.SEQUENCES)
    site.commit(5, 1)
    sequences, transactions = (f'exactly-once-by = "{way}"' for way in ("sequences", "transactions"))
    assert ways(site, sequences) == [("sequences", sequences), ("transactions", "")]
    assert ways(site, transactions) == [("sequences", ""), ("transactions", transactions)]
    assert ways(site, 'delivery = "at-least-once"') == [("", ""), ("", "")]


def test_an_unhealthy_partition_shows_the_ledger_s_error_and_a_healthy_one_does_not(site: StatusHarness) -> None:
    site.a.add_topic("orders", [100, 100])
    site.lead(-1, 1)
    site.commit(100)
    ledger = Ledger.open(site.folder / "report", "f", "run")
    ledger.write_attempts([result(0, "old"), result(1, "older")])
    site.run()
    with site.watch() as watch:
        healthy, _ = watch.read().partitions
        assert healthy.last_error is None
        site.produce(50)
        for _ in range(8):
            site.later(10)
            watch.read()
        site.later(10)
        stuck, lost = watch.read().partitions
    assert (stuck.lag.state, stuck.last_error and stuck.last_error.line) == (LagState.STUCK, "old")
    assert lost.last_error is not None
    assert lost.last_error.line == "the source partition has no leader", "what is seen now comes first"


def test_a_topic_that_cannot_be_copied_is_named_with_its_reason_and_hides_no_other(site: StatusHarness) -> None:
    long = "orders".ljust(249, "x")
    site.a.add_topic("orders", [10]).add_topic(long, [3]).add_topic("orders.new", [3]).add_topic("orders-refused", [3])
    site.a.add_topic("orders-comes", [3])
    site.b.add_topic("a.orders", [0]).add_topic("a_orders.new", [0])
    site.commit(10)
    ledger = Ledger.open(site.folder / "report", "f", "run-1")
    ledger.write_targets(
        TargetTopics(copyable={"orders": 1}, obstacles={"orders-refused": Obstacle("POLICY_VIOLATION: no")})
    )
    with site.watch() as watch:
        found = {one.topic: one for one in watch.read().partitions}
    assert found["orders"].last_error is None
    assert found["orders-comes"].last_error is None, "it is to be created"
    assert found["orders-comes"].lag.state is LagState.NOT_BEGUN
    for name, words in {
        long: "would have 251 characters",
        "orders.new": "collides",
        "orders-refused": "POLICY",
    }.items():
        trouble = found[name].last_error
        assert trouble is not None
        assert words in trouble.line
        assert (trouble.time_ms, found[name].lag.state) == (T0, LagState.STUCK)


def test_a_topic_that_exists_now_has_no_earlier_error(site: StatusHarness) -> None:
    site.a.add_topic("orders", [3, 3])
    site.b.add_topic("a.orders", [0])
    ledger = Ledger.open(site.folder / "report", "f", "run-1")
    ledger.write_targets(TargetTopics(copyable={"orders": 0}, obstacles={"orders": Obstacle("POLICY_VIOLATION: no")}))
    with site.watch() as watch:
        first, second = watch.read().partitions
    assert first.last_error is None
    assert second.last_error is not None


def test_target_topics_are_read_only_for_partitions_without_progress(
    site: StatusHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 topics that are copied cost nothing more."""
    site.a.add_topic("orders", [3]).add_topic("orders-new", [3])
    site.b.add_topic("a.orders", [0]).add_topic("a.orders-new", [0])
    site.commit(3)
    asked = list[str]()
    plain = fakes.Admin.describe_topics

    def describe(self: fakes.Admin, names: Iterable[str], **options: bool) -> object:
        wanted = list(names)
        asked.extend(wanted if self.cluster.server == "b:1" else [])
        return plain(self, wanted, **options)

    monkeypatch.setattr(fakes.Admin, "describe_topics", describe)
    with site.watch() as watch:
        watch.read()
    assert [name for name in asked if name != offset_topic_of("f")] == ["a.orders-new"]
