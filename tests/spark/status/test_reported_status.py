"""What the status of a flow takes from what its runs have reported: last errors, ways and obstacles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mirror.client import Admin
from mirror.relay.model.way import Way
from mirror.relay.progress.flow_topic import latch_topic_of, offset_topic_of, takeover_topic_of
from mirror.telemetry.lag.lags import LagState
from tests.spark.attempts import OLD, YOUNG, in_way, result
from tests.spark.flow_harness import configuration
from tests.spark.status_harness import T0, StatusHarness

if TYPE_CHECKING:
    from collections.abc import Iterable


def ways(site: StatusHarness, mode: str) -> list[tuple[str, str]]:
    site.config.write_text(f"{configuration()}{mode}\n")
    with site.watch() as watch:
        return [(one.way, one.way_reason) for one in watch.read().partitions]


def test_the_way_is_that_of_the_progress_and_its_reason_that_of_its_task(site: StatusHarness) -> None:
    site.a.add_topic("orders", [9, 9, 9, 9])
    for partition, way in enumerate((Way.SEQUENCES, Way.TRANSACTIONS, Way.SEQUENCES)):
        site.commit(5, partition, way=way)
    assert ways(site, 'exactly-once-by = "auto"') == [
        ("sequences", ""),
        ("transactions", ""),
        ("sequences", ""),
        ("", ""),
    ]
    site.report_results(in_way(0, "sequences", YOUNG), in_way(1, "transactions", OLD), in_way(2, "transactions", OLD))
    assert ways(site, 'exactly-once-by = "auto"') == [
        ("sequences", YOUNG),
        ("transactions", OLD),
        ("sequences", ""),
        ("", ""),
    ], "the report is older than the progress of the third partition"


def test_the_reason_of_a_fixed_way_is_the_flow(site: StatusHarness) -> None:
    site.a.add_topic("orders", [9, 9])
    site.commit(5, way=Way.SEQUENCES)
    site.commit(5, 1)
    sequences, transactions = (f'exactly-once-by = "{way}"' for way in ("sequences", "transactions"))
    assert ways(site, sequences) == [("sequences", sequences), ("transactions", "")]
    assert ways(site, transactions) == [("sequences", ""), ("transactions", transactions)]
    assert ways(site, 'delivery = "at-least-once"') == [("", ""), ("", "")]


def test_an_unhealthy_partition_shows_the_reported_error_and_a_healthy_one_does_not(site: StatusHarness) -> None:
    site.a.add_topic("orders", [100, 100])
    site.lead(-1, 1)
    site.commit(100)
    site.report_results(result(0, "old"), result(1, "older"), time_ms=T0 - 1)
    site.run()
    with site.watch() as watch:
        healthy, _ = watch.read().partitions
        assert healthy.trouble is None
        site.produce(50)
        for _ in range(8):
            site.later(10)
            watch.read()
        site.later(10)
        stuck, lost = watch.read().partitions
    assert (stuck.lag.state, stuck.trouble and stuck.trouble.line) == (LagState.STUCK, "old")
    assert lost.trouble is not None
    assert lost.trouble.line == "the source partition has no leader", "what is seen now comes first"


def test_a_topic_that_cannot_be_copied_is_named_with_its_reason_and_hides_no_other(site: StatusHarness) -> None:
    long = "orders".ljust(249, "x")
    site.a.add_topic("orders", [10]).add_topic(long, [3]).add_topic("orders.new", [3]).add_topic("orders-refused", [3])
    site.a.add_topic("orders-comes", [3])
    site.b.add_topic("a.orders", [0]).add_topic("a_orders.new", [0])
    site.commit(10)
    site.report_obstacle("orders-refused", "POLICY_VIOLATION: no")
    with site.watch() as watch:
        found = {one.topic: one for one in watch.read().partitions}
    assert found["orders"].trouble is None
    assert found["orders-comes"].trouble is None, "it is to be created"
    assert found["orders-comes"].lag.state is LagState.NOT_BEGUN
    for name, words in {
        long: "would have 251 characters",
        "orders.new": "collides",
        "orders-refused": "POLICY",
    }.items():
        trouble = found[name].trouble
        assert trouble is not None
        assert words in trouble.line
        assert (trouble.time_ms, found[name].lag.state) == (T0, LagState.FAILED)


def test_a_topic_that_exists_now_has_no_earlier_error(site: StatusHarness) -> None:
    site.a.add_topic("orders", [3, 3])
    site.b.add_topic("a.orders", [0])
    site.report_obstacle("orders", "POLICY_VIOLATION: no")
    with site.watch() as watch:
        first, second = watch.read().partitions
    assert first.trouble is None
    assert second.trouble is not None


def test_target_topics_are_read_only_for_partitions_without_progress(
    site: StatusHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 topics that are copied cost nothing more."""
    site.a.add_topic("orders", [3]).add_topic("orders-new", [3])
    site.b.add_topic("a.orders", [0]).add_topic("a.orders-new", [0])
    site.commit(3)
    asked = list[str]()
    plain = Admin.describe_topics

    def describe(self: Admin, names: Iterable[str], **options: bool) -> object:
        wanted = list(names)
        asked.extend(wanted if self.network_thread.settings.bootstrap == (("b", 1),) else [])
        return plain(self, wanted, **options)

    monkeypatch.setattr(Admin, "describe_topics", describe)
    with site.watch() as watch:
        watch.read()
    own = {offset_topic_of("f"), takeover_topic_of("f"), latch_topic_of("f")}
    assert [name for name in asked if name not in own] == ["a.orders-new"]


def test_a_partition_that_failed_is_failed_until_it_is_copied_again(site: StatusHarness) -> None:
    site.a.add_topic("orders", [100, 100])
    site.now_ms = T0 - 1
    site.commit(100)
    site.commit(40, 1)
    site.report_results(result(0, "record 100 is refused"), result(1, "older"))
    with site.watch() as watch:
        first, second = watch.read().partitions
        assert (first.lag.state, first.lag.records) == (LagState.FAILED, 0), "also if nothing is to be copied"
        assert (second.lag.state, second.lag.records) == (LagState.FAILED, 60)
        assert first.trouble is not None
        assert first.trouble.line == "record 100 is refused"
        site.now_ms = T0 + 1
        site.commit(41, 1)
        assert [one.lag.state is LagState.FAILED for one in watch.read().partitions] == [True, False]
        site.report_results(result(0, None))
        assert LagState.FAILED not in {one.lag.state for one in watch.read().partitions}


def test_a_partition_that_appeared_during_the_run_is_behind_from_its_start(site: StatusHarness) -> None:
    site.config.write_text(configuration() + 'start = "latest"\n')
    site.a.add_topic("orders", [9]).add_topic("orders-new", [5])
    site.b.add_topic("a.orders", [0]).add_topic("a.orders-new", [0])
    new = result(0, None)
    site.report_results(replace(new, result=replace(new.result, topic="orders-new", start=0, end=0)), run="r1")
    with site.watch() as watch:
        assert [one.lag.records for one in watch.read().partitions] == [0, 0], "a run would begin at both ends"
        site.run()
        assert [one.lag.records for one in watch.read().partitions] == [0, 5]
