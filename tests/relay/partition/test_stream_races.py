"""Courses of events in a stream that :mod:`.test_stream_model` hits seldom, with the real code on fake brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirror.wire.api import Api
from tests.examples import crossed
from tests.fakes import errors
from tests.fakes.control import Action
from tests.relay.partition.stream_site import StreamSite

WAYS = ["auto", "transactions"]


@pytest.fixture(params=WAYS)
def site(request: pytest.FixtureRequest) -> Iterator[StreamSite]:
    """Its first task has copied ten batches of one record."""
    made = StreamSite(level=2, by=request.param, marker_ms=0, jitter_ms=3, seed=1, **{"batch.size": 1})
    made.source_grows([1] * 10, 0)
    made.job_begins()
    made.time_passes(2_000)
    yield made
    made.close()


@pytest.mark.parametrize(("code", "later_ms"), crossed([None, errors.OFFSET_OUT_OF_RANGE], [100, 300]))
def test_fetch_fails_while_the_partition_is_moved(site: StreamSite, code: int | None, later_ms: int) -> None:
    """The next task begins behind what the other one has copied meanwhile."""
    site.moves(1)
    site.fetch_fails(1, code, skipped=0, times=1, again_ms=900)
    site.time_passes(950)
    site.task_stands_still(1, 600)
    site.source_trickles(2, later_ms, 1)
    site.time_passes(3_000)
    site.finish()


@pytest.mark.parametrize(("site", "stands_ms"), crossed(WAYS, [(200, 200), (300, 200), (400, 300)]), indirect=["site"])
def test_poll_returns_what_was_fetched_before_and_behind_the_position_that_is_found_meanwhile(
    site: StreamSite, stands_ms: tuple[int, int]
) -> None:
    site.changes_hands("moves", 1, batches=14, stands_ms=stands_ms)
    site.time_passes(3_000)
    site.finish()


@pytest.mark.parametrize(("site", "claims"), crossed(WAYS, [1, 3]), indirect=["site"])
def test_target_loses_the_last_commits(site: StreamSite, claims: int) -> None:
    for task in (1, 0, 1):
        site.changes_hands("moves", task, batches=3)
        site.time_passes(2_000)
    site.kill(1)
    site.offsets_topic_loses_commits(claims, 1)
    site.finish()


@pytest.mark.parametrize(("site", "ms"), crossed(WAYS, [1, 60]), indirect=["site"])
def test_copy_that_has_moved_back_dies_before_its_first_lazy_commit(site: StreamSite, ms: int) -> None:
    """Lazy progress from before the source was cut back is further than its claim."""
    site.gap_is_skipped_once(6, [1, 1], ms)
    site.finish()


@pytest.mark.parametrize("late_ms", [100, 400])
def test_a_partition_is_moved_while_batches_of_it_have_no_answer(site: StreamSite, late_ms: int) -> None:
    """It is settled once they have one: the next task begins behind them."""
    site.source_trickles(14, 0, 40)
    site.time_passes(250)
    for _ in range(3):
        site.target.control.on(Api.PRODUCE, Action(stall_ms=late_ms))
    site.time_passes(60)
    site.moves(1)
    site.time_passes(3_000)
    site.finish()


def test_a_task_that_was_taken_for_lost_and_the_next_attempt_are_asked_for_the_partition(site: StreamSite) -> None:
    """Both settle the release: the first one may still send."""
    site.task_is_lost(0)
    site.time_passes(300)
    site.changes_hands("moves", 1, batches=14)
    site.time_passes(3_000)
    site.finish()


@pytest.mark.parametrize("suspended", [True, False])
def test_a_release_that_is_not_settled_in_time(site: StreamSite, *, suspended: bool) -> None:
    """The next task fences the one that had the partition, which goes on later."""
    if suspended:
        site.suspend(0)
    else:
        site.task_stands_still(1, 20_000)
    site.changes_hands("moves", 1, batches=14)
    site.time_passes(12_000)
    site.resume(0)
    site.source_grows([1, 1], 0)
    site.time_passes(9_000)
    site.finish()


def test_plan_is_older_than_a_fence(site: StreamSite) -> None:
    site.changes_hands("job_begins")
    site.time_passes(1_500)
    site.changes_hands("job_begins", plan_age=1)
    site.time_passes(1_500)
    site.finish()
