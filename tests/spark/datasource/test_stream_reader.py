"""The stream reader: when epochs are planned, and what is retried."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.spark.datasource.rows import ROW_SCHEMA
from mirror.spark.datasource.stream_reader import RangesStreamReader, early_ms
from mirror.spark.ledger.obstacles import TargetTopics
from tests.polling import eventually
from tests.spark.epochs_harness import CONFIG, EpochsHarness, answer


def test_epochs_follow_each_other_and_their_offset_has_the_lag(site: EpochsHarness) -> None:
    reader = site.reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)  # type: ignore[arg-type]  # there is no limit
    assert end == {"epoch": 1, "ends": {"orders": 30}, "lag": 30, "not planned": 0}
    assert json.loads(json.dumps(end)) == end
    assert reader.reportLatestOffset() == end
    rows = [row for partition in reader.partitions(start, end) for row in reader.read(partition)]
    assert len(rows) == 2
    assert reader.latestOffset(end, None)["epoch"] == 2  # type: ignore[arg-type]


def _planned_early(site: EpochsHarness) -> tuple[RangesStreamReader, dict[str, Any]]:
    """A reader whose first epoch runs, and whose second one is planned; and the offset of the first."""
    site.config.write_text(CONFIG + "epoch-ms = 1000\n")
    reader = site.reader()
    end = reader.latestOffset({"epoch": 0}, None)  # type: ignore[arg-type]
    reader.partitions({"epoch": 0}, end)
    eventually(lambda: reader._early is not None and reader._early._plan is not None)
    return reader, end


def test_the_next_epoch_is_planned_early_and_has_the_last_epochs_results(site: EpochsHarness) -> None:
    reader, end = _planned_early(site)
    assert site.ledger.last_planned_epoch() == 1, "it is not begun yet"
    first = site.ledger.plan(1)
    assert first is not None
    answer(site.ledger, first, Outcome.UNFINISHED, stuck_since_ms=77, records=1)
    site.a.set_moods({"list_offsets": "asked again"})
    end = reader.latestOffset(end, None)  # type: ignore[arg-type]
    assert end["epoch"] == 2
    ranges = [row for partition in reader.partitions({"epoch": 1}, end) for row in reader.read(partition)]
    stuck = [field.name for field in ROW_SCHEMA.fields].index("stuck_since_ms")
    assert {row[stuck] for row in ranges} == {77}
    reader.stop()


def test_an_early_plan_is_begun_even_if_a_target_topic_was_prepared_since(site: EpochsHarness) -> None:
    """To plan again takes seconds with thousands of topics, and discovery adds to the epoch what its plan lacks."""
    site.ledger.write_targets(TargetTopics(copyable={"orders": 1}))
    reader, end = _planned_early(site)
    site.ledger.write_targets(TargetTopics(copyable={"orders": 2}, version=2))
    site.a.set_moods({"list_offsets": "asked again"})
    assert reader.latestOffset(end, None)["epoch"] == 2  # type: ignore[arg-type]
    plan = site.ledger.plan(2)
    assert plan is not None
    assert ({one.partition for one in plan.ranges}, plan.targets_version) == ({0}, 1), "discovery compares the version"
    reader.stop()


def test_an_early_plan_is_replaced_if_its_epoch_was_ended_for_another_plan(site: EpochsHarness) -> None:
    """As if a topic was made again: the early plan has the former one."""
    site.ledger.write_targets(TargetTopics(copyable={"orders": 1}))
    site.orders("run-1").claim()
    reader, end = _planned_early(site)
    site.ledger.write_targets(TargetTopics(copyable={"orders": 2}, version=2))
    site.orders("run-1").request_new_plan(1)
    assert reader.latestOffset(end, None)["epoch"] == 2  # type: ignore[arg-type]
    plan = site.ledger.plan(2)
    assert plan is not None
    assert {one.partition for one in plan.ranges} == {0, 1}
    reader.stop()


@pytest.mark.parametrize(
    ("epoch_ms", "took_ms", "early"), [(180_000, None, 2_000), (180_000, 300, 2_000), (180_000, 9_000, 18_000)]
)
def test_a_plan_that_takes_long_is_begun_earlier(epoch_ms: int, took_ms: int | None, early: int) -> None:
    assert early_ms(epoch_ms, took_ms) == early


def test_the_next_epoch_is_planned_in_its_second_half_at_the_earliest() -> None:
    assert early_ms(8_000, 30_000) == 4_000
    assert early_ms(1_000, 30_000) == 2_000, "at once"


def test_an_early_plan_is_dropped_once_the_run_is_over(site: EpochsHarness) -> None:
    site.orders("run-1").claim()  # as the driver's script does
    reader, end = _planned_early(site)
    assert site.ledger.last_planned_epoch() == 1, "it is not begun yet"
    assert site.orders().stop() is not None
    assert reader.latestOffset(end, None) == end  # type: ignore[arg-type]
    reader.stop()


def test_an_epoch_from_before_a_restart_is_planned_again(site: EpochsHarness) -> None:
    reader = site.reader()
    rows = [row for partition in reader.partitions({"epoch": 3}, {"epoch": 4}) for row in reader.read(partition)]
    assert len(rows) == 2


def test_a_cluster_that_does_not_answer_is_retried_with_backoff_and_fails_a_drain(site: EpochsHarness) -> None:
    site.a.set_moods({"list_offsets": "no Describe"})
    reader = site.reader()
    assert reader.latestOffset({"epoch": 0}, None) == {"epoch": 0}  # type: ignore[arg-type]
    error = site.ledger.error()
    assert error is not None
    assert "no Describe" in error.line
    site.a.set_moods({})
    assert reader.latestOffset({"epoch": 0}, None) == {"epoch": 0}, "not at once"  # type: ignore[arg-type]
    reader._not_before_ms = 0
    assert reader.latestOffset({"epoch": 0}, None)["epoch"] == 1  # type: ignore[arg-type]
    assert site.ledger.error() is None
    first, last = site.ledger.messages()
    assert "no Describe" in first
    assert last == "epoch 1 is planned, after 1 failed attempts"
    assert site.ledger.messages(1) == [last]
    site.a.set_moods({"list_offsets": "no Describe"})
    drain = site.reader()
    drain.prepareForTriggerAvailableNow()
    with pytest.raises(Exception, match="no Describe"):
        drain.latestOffset({"epoch": 0}, None)  # type: ignore[arg-type]


def test_epochs_that_copy_nothing_follow_each_other_with_backoff(site: EpochsHarness) -> None:
    reader = site.reader()
    end = reader.latestOffset({"epoch": 0}, None)  # type: ignore[arg-type]
    plan = site.ledger.plan(1)
    assert plan is not None
    answer(site.ledger, plan, Outcome.FAILED)
    assert reader.latestOffset(end, None) == end, "not at once"  # type: ignore[arg-type]
    assert site.ledger.last_planned_epoch() == 1
    reader._not_before_ms = 0
    assert reader.latestOffset(end, None)["epoch"] == 2  # type: ignore[arg-type]
