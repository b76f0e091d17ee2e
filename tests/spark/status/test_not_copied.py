"""The lag of partitions of which nothing is on the target: not begun, or copied into a topic that is gone."""

from __future__ import annotations

from typing import Any

import pytest

from mirror.client import Admin, TopicPartition
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.progress.committed import Progress, group_of, to_offset
from mirror.relay.progress.target_log import TargetMark
from mirror.spark.ledger.attempt_results import AttemptResult
from mirror.spark.status import flow_view
from mirror.telemetry.lag.lags import LagState
from mirror.wire.api import Api
from tests.spark.flow_harness import configuration
from tests.spark.status_harness import StatusHarness, only_partition


@pytest.mark.parametrize(
    ("line", "records"),
    [
        ("", 90),
        ('start = "earliest"', 90),
        ('start = "latest"', 0),
        ('start = "1970-01-01T00:00:00.040Z"', 60),  # record n has the time stamp n
        ("from = 70", 30),
        ("from = 3", 90),
        ("from = 200", 0),
    ],
)
def test_a_partition_without_progress_is_behind_from_where_the_flow_begins(
    site: StatusHarness, line: str, records: int
) -> None:
    site.config.write_text(f"{configuration()}{line}\n")
    site.a.add_topic("orders", [100], earliest=10)
    with site.watch() as watch:
        found = watch.read()
    (one,) = found.partitions
    assert (one.lag.state, one.lag.records, found.totals.records) == (LagState.NOT_BEGUN, records, records)
    assert found.totals.unknown == 0


def commit_into(site: StatusHarness, topic_id: str, offset: int = 100, partition: int = 0) -> None:
    """Commit progress with the mark of a target topic of this id."""
    tp = TopicPartition("a.orders", partition)
    progress = Progress(
        offset=offset,
        leader_epoch=0,
        source_cluster_id="id-a:1",
        topic_id="",
        time_ms=site.now_ms,
        target=TargetMark(topic_id=topic_id, end=offset),
    )
    Admin({"bootstrap.servers": "b:1"}).commit_group_offsets(group_of("f", tp), {tp: to_offset(progress)})


@pytest.mark.parametrize(("exists", "word"), [(True, "target-recreated"), (False, "target-deleted")])
def test_what_was_copied_into_a_topic_that_is_gone_is_all_behind(site: StatusHarness, exists: bool, word: str) -> None:
    site.a.add_topic("orders", [100], earliest=10)
    if exists:
        site.b.add_topic("a.orders", [0])
    commit_into(site, "an-earlier-one")
    with site.watch() as watch:
        one = only_partition(watch)
    assert (one.lag.state, one.lag.records) == (LagState.FAILED, 90)
    assert one.trouble is not None
    assert one.trouble.line.startswith(f"{word}: target topic a.orders ")
    assert 'on-target-recreated = "start-over"' in one.trouble.line


def reported(outcome: Outcome = Outcome.COMPLETE, **values: Any) -> AttemptResult:
    known: dict[str, Any] = {"flow": "f", "topic": "orders", "target_topic": "a.orders", "partition": 0, **values}
    return AttemptResult(0, 0, RangeResult(start=10, outcome=outcome, **known))


def test_a_target_topic_that_was_deleted_with_its_progress_has_not_just_not_begun(site: StatusHarness) -> None:
    """Brokers delete what is committed for a topic with it, and a stream makes it again only seconds later."""
    site.a.add_topic("orders", [100], earliest=10)
    site.report_results(reported(end=100))
    with site.watch() as watch:
        one = only_partition(watch)
        assert (one.lag.state, one.lag.records) == (LagState.FAILED, 90)
        assert one.trouble is not None
        assert one.trouble.line.startswith("target-deleted: target topic a.orders does not exist any more")
        site.b.add_topic("a.orders", [0])
        assert only_partition(watch).lag.state is LagState.NOT_BEGUN


@pytest.mark.parametrize("copied", [{"end": 0}, {"end": 10, "outcome": Outcome.FAILED, "error": "refused"}])
def test_a_target_topic_that_was_never_there_was_not_deleted(site: StatusHarness, copied: dict[str, Any]) -> None:
    site.a.add_topic("orders", [100], earliest=10)
    site.report_results(reported(**copied))
    with site.watch() as watch:
        trouble = only_partition(watch).trouble
    assert (trouble and trouble.line) == copied.get("error")


def test_all_partitions_of_a_topic_that_was_made_again_have_the_same_line(site: StatusHarness) -> None:
    """So that it is printed once for the topic."""
    site.a.add_topic("orders", [100, 90])
    site.b.add_topic("a.orders", [0, 0])
    for partition, offset in enumerate((100, 80)):
        commit_into(site, "an-earlier-one", offset, partition)
    with site.watch() as watch:
        (line,) = {one.trouble.line for one in watch.read().partitions if one.trouble is not None}
    assert line.startswith("target-recreated: target topic a.orders was deleted (topic id an-earlier-one, now ")
    assert "made again by a run, as each topic that is missing" in line


def test_many_target_topics_with_copies_are_described_less_often(
    site: StatusHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_view, "_KEPT_MS", 3_000)
    site.a.add_topic("orders", [100])
    site.b.add_topic("a.orders", [50])
    commit_into(site, "an-earlier-one", 50)

    def described() -> int:
        asked = [call.body.topics or () for call in site.b.kafka.calls(Api.METADATA)]
        return sum(any(one.name == "a.orders" for one in topics) for topics in asked)

    with site.watch() as watch:
        before = described()
        for _ in range(3):
            assert only_partition(watch).lag.state is LagState.FAILED
            site.later(0.9)
        assert described() == before + 1
        site.later(1)
        assert only_partition(watch).lag.state is LagState.FAILED
        assert described() == before + 2


def test_a_flow_that_starts_over_has_not_begun_in_the_new_topic(site: StatusHarness) -> None:
    site.config.write_text(f'{configuration()}on-target-recreated = "start-over"\n')
    site.a.add_topic("orders", [100], earliest=10)
    commit_into(site, "an-earlier-one")
    with site.watch() as watch:
        one = only_partition(watch)
    assert (one.lag.state, one.lag.records) == (LagState.NOT_BEGUN, 90)


def test_a_topic_with_its_copies_has_caught_up(site: StatusHarness) -> None:
    site.a.add_topic("orders", [100])
    site.b.add_topic("a.orders", [100])
    commit_into(site, site.b.state()["topics"]["a.orders"]["id"])
    with site.watch() as watch:
        assert (only_partition(watch).lag.state, only_partition(watch).lag.records) == (LagState.CAUGHT_UP, 0)
