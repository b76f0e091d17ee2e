"""Courses of events in a stream that :mod:`.test_stream_model` hits seldom, with the real code on fake brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes import errors
from tests.relay.partition.stream_site import StreamSite


@pytest.fixture(params=["auto", "transactions"])
def site(request: pytest.FixtureRequest) -> Iterator[StreamSite]:
    """Its first epoch has copied ten batches of one record."""
    made = StreamSite(level=2, by=request.param, marker_ms=0, jitter_ms=3, seed=1, **{"batch.size": 1})
    made.source_grows([1] * 10, 0)
    made.epoch_begins(0)
    made.time_passes(2_000)
    yield made
    made.close()


@pytest.mark.parametrize("code", [None, errors.OFFSET_OUT_OF_RANGE], ids=["damaged", "out of range"])
@pytest.mark.parametrize("later_ms", [100, 300])
def test_fetch_fails_while_the_copy_of_the_epoch_before_is_asked_to_yield(
    site: StreamSite, code: int | None, later_ms: int
) -> None:
    """That one has fetched the same records, and yields behind them before they are fetched again."""
    site.epoch_begins(0)
    site.fetch_fails(0, code, skipped=0, times=1, again_ms=900)
    site.time_passes(950)
    site.task_stands_still(1, 600)
    site.source_trickles(2, later_ms, 1)
    site.time_passes(3_000)
    site.finish()


@pytest.mark.parametrize("stands_ms", [(200, 200), (300, 200), (400, 300)])
def test_poll_returns_what_was_fetched_before_and_behind_the_position_that_is_found_meanwhile(
    site: StreamSite, stands_ms: tuple[int, int]
) -> None:
    site.epoch(0, batches=14, stands_ms=stands_ms)
    site.time_passes(3_000)
    site.finish()


@pytest.mark.parametrize("claims", [1, 3])
def test_target_loses_the_last_commits(site: StreamSite, claims: int) -> None:
    for _ in range(3):
        site.epoch(0, batches=3)
        site.time_passes(2_000)
    site.kill(0)
    site.offsets_topic_loses_commits(claims, 1)
    site.finish()


@pytest.mark.parametrize("ms", [1, 60])
def test_copy_that_has_moved_back_dies_before_its_first_lazy_commit(site: StreamSite, ms: int) -> None:
    """Lazy progress from before the source was cut back is further than its claim."""
    site.gap_is_skipped_once(6, [1, 1], ms)
    site.finish()


def test_plan_is_older_than_a_fence(site: StreamSite) -> None:
    """The copy that it says was copying is still on the host, and was fenced from another one."""
    site.epoch(1)
    site.time_passes(1_500)
    site.epoch(0, plan_age=1)
    site.time_passes(1_500)
    site.finish()
