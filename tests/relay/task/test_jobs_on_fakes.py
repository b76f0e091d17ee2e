"""A job whose tasks live: partitions are given to them, taken from them, and each record is copied once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirror.relay.model.ranges import Outcome
from tests.relay.job_site import JobSite


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
