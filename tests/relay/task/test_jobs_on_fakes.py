"""A job whose tasks live: partitions are given to them, taken from them, and each record is copied once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.relay.partition.machine import PartitionCopy
from mirror.relay.progress.committed import Progress
from mirror.relay.task.periods import PeriodObserver
from tests.polling import eventually
from tests.relay.job_site import JobSite

DAY_MS = 86_400_000


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobSite]:
    site = JobSite(monkeypatch, [[0, 1], [2]])
    yield site
    site.end()


@pytest.mark.parametrize("by", ["sequences", "transactions"])
def test_a_job_copies_its_rows_until_it_is_to_stop(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    site = JobSite(monkeypatch, [[0, 1], [2]], by=by)
    try:
        site.begin_all()
        for _ in range(3):
            for partition in range(3):
                site.write(partition)
            site.copied()
        results = site.stop()
        assert [[one.partition for one in results[each]] for each in ((0, 0), (1, 0))] == [[0, 1], [2]]
        assert {(one.outcome, one.records) for each in results.values() for one in each} == {(Outcome.COMPLETE, 3)}
        site.check()
        assert site.fences == 3
    finally:
        site.end()


def test_a_partition_that_moves_is_copied_once_and_in_order(site: JobSite) -> None:
    site.begin_all()
    for _ in range(3):
        site.write(0)
        site.copied(0)
        report = site.move(0, 1)
        assert report.progress is not None
        assert (report.task, report.result.records) == (0, 1)
        site.write(0)
        site.copied(0)
        assert site.move(0, 0).task == 1
    site.write(0)
    site.copied(0)
    results = site.stop()
    assert [one.partition for one in results[0, 0]] == [1, 0]
    site.check()


@pytest.mark.parametrize("by", ["sequences", "transactions", ""])
def test_the_progress_of_an_idle_partition_is_renewed_while_its_task_lives(
    monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Brokers forget what a group without members has not committed for offsets.retention.minutes."""
    monkeypatch.setattr("mirror.relay.task.upkeep._RENEW_CHECK_MS", 20)
    site = JobSite(monkeypatch, [[0, 1]], exactly_once=bool(by), by=by)
    try:
        site.begin(0, renew_ms=DAY_MS)
        for _ in range(3):
            site.write(0)
            site.committed()  # nothing was ever written to the other partition
            site.clock.ahead_ms += 2 * DAY_MS
            renewed(site, site.clock.unix_ms())
        results = site.stop()[0, 0]
        assert [(one.outcome, one.records, one.retries) for one in results] == [
            (Outcome.COMPLETE, 3, 0),
            (Outcome.COMPLETE, 0, 0),
        ]
        site.check()
    finally:
        site.end()


def renewed(site: JobSite, since_ms: int) -> None:
    """Wait until the claims were written since then, or the progress where that is the claim."""

    def written_ms(progress: Progress) -> int:
        return min(progress.time_ms, progress.claimed_ms or progress.time_ms)

    eventually(
        lambda: all(written_ms(site.progress(each)) >= since_ms for each in site.written),
        within_s=20,
        what="the claims",
    )


def test_a_partition_is_read_back_for_as_long_as_it_is_copied_and_again_if_it_comes_back(
    site: JobSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_period, periods = PeriodObserver.end_period, list[int]()

    def ended(observer: PeriodObserver, copy: PartitionCopy, read_back: dict[str, Any] | None, now: int) -> None:
        periods.append(now)
        end_period(observer, copy, read_back, now)

    monkeypatch.setattr(PeriodObserver, "end_period", ended)
    site.begin_all(verify="all", period_ms=100)
    settled = []
    for task in (1, 0, 1, 0):
        for _ in range(2):
            site.write(0)
            site.committed(0)
        settled.append(site.move(0, task).result.read_back)
    for _ in range(2):
        began = len(periods)
        site.write(0)
        site.committed(0)
        eventually(lambda began=began: len(periods) > began, within_s=20, what="the end of a period")  # type: ignore[misc]
    (result,) = [one for one in site.stop()[0, 0] if one.partition == 0]
    found = [one for one in (*settled, result.read_back) if one is not None]
    assert [one["batches"] + sum(one["unverified"].values()) for one in found] == [2] * 5
    assert found[-1]["unverified"] == {}
    assert all(not one["differences"] for one in found)
