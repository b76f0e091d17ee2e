"""Open transactions of the source: from the brokers to the plan, the dry run, the status and the results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.client import Admin, TopicPartition
from mirror.errors import ConnectionFailed
from mirror.spark.driver.output.tables import remarks
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.results import join_results
from mirror.spark.planning import open_transactions
from mirror.spark.planning.open_transactions import still_open
from mirror.spark.status import status_reader
from tests.spark.fakes import NOW_MS
from tests.spark.planning.planner_harness import PlannerHarness
from tests.spark.planning.test_range_planner import flow
from tests.spark.preflight import test_dry_run
from tests.spark.status_harness import new_status_harness, only_partition

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.relay.progress.open_transactions import OpenTransaction

TP = TopicPartition("orders", 1)
MINUTE = 60_000


@pytest.fixture
def pair() -> PlannerHarness:
    """Two partitions that end at 10; behind the second one 5 records of a transaction that is open for 12 minutes."""
    pair = PlannerHarness()
    pair.a.add_topic("orders", [10, 10]).begin_transaction("orders", 1, 5, start=NOW_MS - 12 * MINUTE)
    return pair


def only(plan: Plan) -> OpenTransaction:
    (one,) = plan.withheld.values()
    return one


def test_a_plan_has_the_producers_of_open_transactions(pair: PlannerHarness) -> None:
    plan = pair.plan(flow())
    one = only(plan)
    assert (one.tp, one.offset, one.records, one.age_ms) == (TP, 10, 5, 12 * MINUTE)
    assert (one.producer_id, one.producer_epoch, one.transactional_id) == (7, 3, "id-7")
    assert sorted((each.partition, each.end) for each in plan.ranges) == [(0, 10), (1, 10)], "no record of it is wanted"
    assert Plan.from_json(plan.to_json()) == plan


def test_a_plan_of_an_older_version_has_no_open_transactions(pair: PlannerHarness) -> None:
    values = pair.plan(flow()).to_json()
    del values["withheld"]
    assert Plan.from_json(values).withheld == {}


def test_withheld_records_are_counted_without_permission_to_describe_producers(
    pair: PlannerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", open_transactions.__name__)
    pair.a.set_moods({"producers": "no"})
    one = only(pair.plan(flow()))
    assert (one.records, one.producer_id, one.age_ms) == (5, None, 0)
    (line,) = [each for each in caplog.messages if "producers" in each]
    assert "are not all known: describing the producers of orders-1" in line


def test_records_after_the_flow_s_end_are_not_withheld(pair: PlannerHarness) -> None:
    assert pair.plan(flow(until=10)).withheld == {}
    assert only(pair.plan(flow(until=12))).records == 2


def test_a_dry_run_warns_of_an_open_transaction(pair: PlannerHarness) -> None:
    found = test_dry_run.look(pair, flow(replication_factor=3))
    (line,) = [line for line in found.warnings if "transaction" in line]
    assert line.startswith("orders-1: 5 records from offset 10 on are not copied")
    assert "producer id 7" in line
    assert "open for 12 min" in line
    (values,) = found.to_json()["withheld"]
    assert values["records"] == 5


def test_a_young_transaction_is_not_reported(pair: PlannerHarness) -> None:
    pair.a.begin_transaction("orders", 1, 5, start=NOW_MS - 1_000)
    found = test_dry_run.look(pair, flow(replication_factor=3))
    assert [line for line in found.warnings if "transaction" in line] == []
    assert len(found.withheld) == 1
    results = join_results(pair.plan(flow()), [])
    assert [one.withheld for one in results] == [None, None]


def test_a_result_has_the_withheld_records(pair: PlannerHarness) -> None:
    first, second = join_results(pair.plan(flow()), [])
    assert first.withheld is None
    assert second.withheld is not None
    assert second.withheld["records"] == 5
    assert "5 records from offset 10 on are not copied" in remarks(second)


def test_at_a_run_s_end_unmoved_transactions_are_still_open(pair: PlannerHarness) -> None:
    pair.a.begin_transaction("orders", 0, 3)
    before = pair.plan(flow()).withheld
    assert set(before) == {TP, TopicPartition("orders", 0)}
    pair.a.end_transaction("orders", 0).begin_transaction("orders", 0, 1)
    pair.a.begin_transaction("orders", 1, 9, start=NOW_MS - 12 * MINUTE)
    found = still_open(pair.source, before, NOW_MS + MINUTE)
    assert {tp: (one.records, one.age_ms) for tp, one in found.items()} == {TP: (14, 13 * MINUTE)}


def test_an_unreachable_source_at_the_end_changes_nothing(
    pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pair.plan(flow()).withheld

    def gone(*_: object, **__: object) -> None:
        raise ConnectionFailed("gone")

    monkeypatch.setattr(Admin, "list_offsets", gone)
    assert still_open(pair.source, before, NOW_MS) == before


# --- looked at again and again


def test_watching_needs_no_coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = new_status_harness(tmp_path, monkeypatch)
    site.a.add_topic("orders", [10]).begin_transaction("orders", 0, 5)
    with site.watch() as watch:
        first = only_partition(watch)
        assert (first.end, first.high_watermark) == (10, 15)
        assert first.withheld is not None
        assert not first.withheld.is_noteworthy
        site.later(70)
        site.a.begin_transaction("orders", 0, 8)
        again = only_partition(watch).withheld
        assert again is not None
        assert (again.records, again.age_ms, again.producer_id) == (13, 70_000, 7)
        assert again.is_stuck()
        site.a.end_transaction("orders", 0)
        site.later(5)
        assert only_partition(watch).withheld is None
        assert watch.read().to_json()["withheld_records"] == 0


def test_producers_are_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = new_status_harness(tmp_path, monkeypatch)
    site.a.add_topic("orders", [10] * 50)
    asked = list[int]()
    described = Admin.describe_producers

    def noted(admin: Admin, tps: list[TopicPartition], **more: int) -> object:
        asked.append(len(tps))
        return described(admin, tps, partial=True, timeout_ms=more["timeout_ms"])

    monkeypatch.setattr(Admin, "describe_producers", noted)
    with site.watch() as watch:
        watch.read()
        assert asked == [], "nothing is open"
        for number in range(50):
            site.a.begin_transaction("orders", number, 1)
        site.later(1)
        watch.read()
        assert asked == [], "they may end at any moment"
        for _ in range(4):
            site.later(1)
            watch.read()
        assert asked == [20, 20, 10], "so many at a time, until all are known"
    assert open_transactions._MAX_PARTITIONS == 20
    assert status_reader.WATCH_CALL_TIMEOUT_MS >= open_transactions._CLUSTER_CALL_TIMEOUT_MS
