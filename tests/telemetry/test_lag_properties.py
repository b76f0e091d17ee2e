"""What holds for the lag of any samples."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.telemetry.lag.lags import Lag, LagState, LagTracker
from mirror.telemetry.lag.offset_history import MAX_SAMPLES, PartitionOffsets
from tests.telemetry.lag_samples import T0, TP

WEEK_MS = 7 * 86_400_000


offsets = st.integers(0, 10**12)
unknown = st.none()


maybe = st.one_of(unknown, offsets, offsets)
steps = st.lists(st.tuples(st.integers(1, 200_000), maybe, maybe, maybe), min_size=1, max_size=40)


def history_of(rows: list[tuple[int, int | None, int | None, int | None]]) -> list[tuple[int, PartitionOffsets]]:
    """Any samples at all, in the order of time: offsets may fall, and be unknown."""
    at_ms, found = 0, []
    for step_ms, start, end, progress in rows:
        at_ms += step_ms
        known = start is not None and end is not None
        found.append((at_ms, PartitionOffsets(start if known else None, end if known else None, progress)))
    return found


histories = steps.map(history_of)


def estimated(history: list[tuple[int, PartitionOffsets]], retention_ms: int | None, after_ms: int = 0) -> Lag:
    lags = LagTracker()
    for at_ms, seen in history:
        lags.add_sample(T0 + at_ms, {TP: seen})
    return lags.estimates(T0 + history[-1][0] + after_ms, {"orders": retention_ms})[TP]


@given(histories, st.one_of(unknown, st.integers(0, 10**12)), st.integers(0, 10**7))
def test_estimates_satisfy_their_invariants(
    history: list[tuple[int, PartitionOffsets]], retention_ms: int | None, after_ms: int
) -> None:
    found = estimated(history, retention_ms, after_ms)
    last = history[-1][1]
    for each in (found.records, found.seconds, found.copied_per_s, found.produced_per_s, found.drain_s):
        assert each is None or each >= 0
    assert (found.state is LagState.NO_LEADER) == (last.end is None)
    if found.records == 0:
        assert (found.seconds, found.drain_s, found.state) == (0.0, 0.0, LagState.CAUGHT_UP)
    if found.records:
        assert (found.state is LagState.LOSING) == (found.loss_s is not None and found.loss_s <= 0)
        if found.state is LagState.CAUGHT_UP:
            assert found.seconds is not None
            assert found.drain_s == 0
        elif found.copied_per_s is not None and found.produced_per_s is not None:
            assert (found.drain_s == math.inf) == (found.copied_per_s <= found.produced_per_s)
        else:
            assert found.drain_s is None
    if found.records is None:
        assert found.state in {LagState.NO_LEADER, LagState.NOT_BEGUN}
        assert found[4:6] == (None, None)


@given(histories, st.integers(0, 10**10), st.integers(0, 10**10))
def test_longer_retention_never_shortens_the_loss_time(
    history: list[tuple[int, PartitionOffsets]], one_ms: int, more_ms: int
) -> None:
    short, long = (estimated(history, each).loss_s for each in (one_ms, one_ms + more_ms))
    if short is not None and long is not None:
        assert long >= short


@given(histories, st.integers(1, 10**9), st.integers(1, 10**15))
def test_estimates_depend_on_differences_only(
    history: list[tuple[int, PartitionOffsets]], later_ms: int, more: int
) -> None:
    def moved(seen: PartitionOffsets) -> PartitionOffsets:
        return PartitionOffsets(*(None if each is None else each + more for each in seen))

    there = estimated([(at_ms + later_ms, moved(seen)) for at_ms, seen in history], WEEK_MS)
    here = estimated(history, WEEK_MS)
    assert there.state is here.state
    for one, other in zip(there[:6], here[:6], strict=True):
        assert one == (None if other is None else pytest.approx(other))


@given(st.lists(st.integers(1, 10**8), min_size=1, max_size=300))
def test_history_is_bounded_for_all_sample_times(gaps_ms: list[int]) -> None:
    lags, at_ms = LagTracker(), T0
    for gap_ms in gaps_ms:
        at_ms += gap_ms
        lags.add_sample(at_ms, {TP: PartitionOffsets(0, 5, 1)})
        assert len(lags.history.samples) <= MAX_SAMPLES
        assert lags.history.samples[-1].time_ms == at_ms
        rates = lags.estimates(at_ms)[TP][2:4]
        assert rates == ((None, None) if at_ms == T0 + gaps_ms[0] else (0.0, 0.0))


@given(histories)
def test_seconds_lie_between_the_samples_around_them(history: list[tuple[int, PartitionOffsets]]) -> None:
    """With a source that only grows, and samples that reach back: no younger than the first sample that had more."""
    grown, end = [], 0
    for at_ms, seen in history[:12]:
        end += (seen.end or 0) % 1_000
        grown.append((at_ms, PartitionOffsets(0, end, 0)))
    progress = end // 2
    if not grown[0][1].end or progress >= end or grown[0][1].end > progress:
        return
    grown[-1] = (grown[-1][0], PartitionOffsets(0, end, progress))
    lags = LagTracker()
    for at_ms, seen in grown:
        lags.add_sample(at_ms, {TP: seen})
    now_ms = grown[-1][0]
    kept = [(sample.time_ms, sample.ends[0]) for sample in lags.history.samples]
    seconds = lags.estimates(now_ms)[TP].seconds
    at_most = (now_ms - max(at for at, there in kept if there <= progress)) / 1000
    at_least = (now_ms - min(at for at, there in kept if there > progress)) / 1000
    assert seconds is not None
    assert at_least <= seconds <= at_most
