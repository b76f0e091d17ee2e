"""Computes each partition's lag, whether it shrinks, and whether the copy is in time. Pure.

A :class:`LagTracker` holds the history of one flow. Its user samples the offsets of all partitions at intervals
(``add_sample``), and ``estimates`` derives the lags. With the source's ``end`` and the copy's ``progress``::

    records    end - progress
    seconds    now - (when the source's end was where the progress is now)
    copied     records/s of the progress, produced: of the end, freed: of the log's start
    drain      records / (copied - produced)
    loss       the smaller of: retention - max(seconds, records / copied)
                               (progress - start) / freed

**Seconds** are computed as in kafka-lag-exporter (its LookupTable): interpolated between two samples, and extrapolated
by the mean rate of all samples if these do not reach back far enough. They are an upper bound of the time since the
oldest uncopied record was written.

**Rates** cover about a minute. A rate is the median of three slopes, between the newest three samples and the oldest
three of that minute, with no sample in two slopes: a single late sample, or a late response of its brokers, affects one
slope only (Theil's incomplete method). A negative slope is discarded: the topic was recreated, or the log truncated.

**Loss** is the time that remains until records expire uncopied; at 0 and below they do expire. The oldest uncopied
record is copied next, and retention deletes it in ``retention - seconds``. The newest existing record is copied after
``records / copied``, and has that age then. (Not after the drain: the drain includes records that arrive meanwhile,
and is infinite for every copy that just keeps pace.) If nothing is copied, there is no such estimate, and only the
oldest record counts. If the log's start moves, because of ``retention.bytes`` or of DeleteRecords requests, it reaches
the present progress in ``(progress - start) / freed``. An extrapolated age above the retention is discarded, because
the record still exists.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.telemetry.lag.offset_history import WINDOW_MS, OffsetHistory, OffsetSample, PartitionOffsets

STUCK_AFTER_S: Final = 60.0
CAUGHT_UP_S: Final = 5.0
"""A copy within this delay is caught up: a following copy always has some records in transit."""


class LagState(enum.StrEnum):
    """The state of a partition's copy, the worst first."""

    LOSING = "losing"
    """Records expire before they are copied."""
    FAILED = "failed"
    """It cannot be copied until someone removes the cause."""
    NO_LEADER = "no leader"
    """The source partition has no leader, so its end is not known."""
    STUCK = "stuck"
    """There are records to copy, and none was copied for a long time."""
    FALLING_BEHIND = "falling behind"
    """Records are produced at least as fast as they are copied."""
    BEHIND = "behind"
    """There are records to copy, and the rates are not known yet."""
    NOT_BEGUN = "not begun"
    """There is no progress on the target."""
    UNKNOWN = "unknown"
    """One of the clusters does not answer."""
    CATCHING_UP = "catching up"
    CAUGHT_UP = "caught up"
    """Only records in transit are left."""

    @property
    def unhealthy(self) -> bool:
        """Whether an operator should act."""
        return self in _UNHEALTHY

    @property
    def rank(self) -> int:
        """The rank by severity; 0 is the worst."""
        return _RANKS[self]


_RANKS: Final = {state: rank for rank, state in enumerate(LagState)}
_UNHEALTHY: Final = frozenset(
    {LagState.LOSING, LagState.FAILED, LagState.NO_LEADER, LagState.STUCK, LagState.FALLING_BEHIND}
)


class Lag(NamedTuple):
    """The lag of one partition; None for a value that is not known. The module's docstring has the formulas."""

    records: int | None
    seconds: float | None
    """0 without lag."""
    copied_per_s: float | None
    produced_per_s: float | None
    drain_s: float | None
    """0 if the partition is caught up, ``inf`` if the lag does not shrink."""
    loss_s: float | None
    """Negative if records will be lost."""
    state: LagState


UNKNOWN_LAG: Final = Lag(None, None, None, None, None, None, LagState.UNKNOWN)


class LagTotals(NamedTuple):
    """The lag of several partitions together. Partitions without a value are left out of its sum or maximum."""

    records: int
    """The sum."""
    unknown: int
    """The number of partitions whose lag is not known."""
    seconds: float | None
    """The largest."""
    copied_per_s: float | None
    """The sum."""
    produced_per_s: float | None
    """The sum."""
    drain_s: float | None
    """The largest."""
    loss_s: float | None
    """The smallest."""
    states: Counter[LagState]
    """The number of partitions in each state, the worst state first."""


def totals(lags: Iterable[Lag]) -> LagTotals:
    """Return the totals of ``lags``."""
    lags = list(lags)
    return LagTotals(
        records=sum(lag.records or 0 for lag in lags),
        unknown=sum(lag.records is None for lag in lags),
        seconds=max((lag.seconds for lag in lags if lag.seconds is not None), default=None),
        copied_per_s=_sum(lag.copied_per_s for lag in lags),
        produced_per_s=_sum(lag.produced_per_s for lag in lags),
        drain_s=max((lag.drain_s for lag in lags if lag.drain_s is not None), default=None),
        loss_s=min((lag.loss_s for lag in lags if lag.loss_s is not None), default=None),
        states=Counter(sorted((lag.state for lag in lags), key=_RANKS.__getitem__)),
    )


def uncopied(lag: Lag, first: int | None, end: int | None, state: LagState) -> Lag:
    """Return the lag of a partition of which nothing is on the target: all records from ``first`` on are to be copied.

    ``first`` is where a copy begins, by the flow's start. None for an offset that is not known.
    """
    records = None if first is None or end is None else max(0, end - first)
    return Lag(records, None, None, lag.produced_per_s, None, None, state)


def worst_first(tp: TopicPartition, lag: Lag) -> tuple[int, float, int, TopicPartition]:
    """Return a sort key for partitions: by state, then the latest first, then those with most records left."""
    return lag.state.rank, -(lag.seconds or 0.0), -(lag.records or 0), tp


class LagTracker:
    """Tracks the lags of a flow's partitions. Not thread-safe. 100,000 partitions take about 40 MB."""

    def __init__(self, *, window_ms: int = WINDOW_MS) -> None:
        self.history: Final = OffsetHistory(window_ms=window_ms)

    def add_sample(self, time_ms: int, seen: Mapping[TopicPartition, PartitionOffsets]) -> None:
        """Add the offsets of all partitions at ``time_ms``; see :meth:`OffsetHistory.add_sample`."""
        self.history.add_sample(time_ms, seen)

    def estimates(
        self,
        now_ms: int,
        retention_ms: Mapping[str, int | None] | None = None,
        *,
        stuck_after_s: float = STUCK_AFTER_S,
    ) -> dict[TopicPartition, Lag]:
        """Return the lag of each partition; ``now_ms`` is not before the last sample.

        ``retention_ms`` is by source topic. None, or a missing topic, means that records do not expire or that their
        retention is not known. A partition is stuck if its progress has not moved for ``stuck_after_s``; pass ``inf``
        if the flow is not supposed to copy now.
        """
        history = self.history
        if not history.samples:
            return {}
        caught_up_s = max(CAUGHT_UP_S, (now_ms - (history.previous_ms or now_ms)) / 1000)
        estimator = _LagEstimator(history.samples, now_ms, caught_up_s)
        retention_s = {topic: ms / 1000 for topic, ms in (retention_ms or {}).items() if ms is not None}
        stuck_since_ms = now_ms - stuck_after_s * 1000
        earliest, ends, progress = history.recent()
        rows = zip(
            history.tps,
            zip(earliest.last, ends.last, progress.last, strict=True),
            zip(progress.rates(), ends.rates(), earliest.rates(), strict=True),
            history.moved_ms,
            strict=True,
        )
        return {
            tp: estimator.lag(column, offsets, rates, moved_ms < stuck_since_ms, retention_s.get(tp.topic))
            for column, (tp, offsets, rates, moved_ms) in enumerate(rows)
        }


class _LagEstimator:
    """Derives the lag of one partition after the other from the same samples."""

    def __init__(self, samples: Sequence[OffsetSample], now_ms: int, caught_up_s: float) -> None:
        self._last_ms: Final = samples[-1].time_ms
        self._earlier: Final = [(sample.time_ms, sample.ends) for sample in reversed(samples[:-1])]
        self._now_ms: Final = now_ms
        self._caught_up_s: Final = caught_up_s

    def lag(
        self,
        column: int,
        offsets: tuple[int, int, int],
        rates: tuple[float | None, float | None, float | None],
        unmoved: bool,
        retention_s: float | None,
    ) -> Lag:
        start, end, progress = offsets
        copied, produced, freed = rates
        if end < 0:
            return Lag(None, None, copied, None, None, None, LagState.NO_LEADER)
        if progress < 0 and start != end:
            return Lag(None, None, None, produced, None, None, LagState.NOT_BEGUN)
        if progress < 0 or progress >= end:
            return Lag(0, 0.0, copied, produced, 0.0, retention_s, LagState.CAUGHT_UP)
        records = end - progress
        seconds, interpolated = self._seconds(column, progress, end)
        plausible = interpolated or seconds is None or retention_s is None or seconds <= retention_s
        age_s = seconds if plausible else None
        loss_s = _loss(records, age_s, copied, retention_s, progress - start if start >= 0 else None, freed)
        if loss_s is not None and loss_s <= 0:
            state = LagState.LOSING
        elif unmoved:
            state = LagState.STUCK
        elif seconds is not None and seconds <= self._caught_up_s:
            state = LagState.CAUGHT_UP
        elif copied is None or produced is None:
            state = LagState.BEHIND
        else:
            state = LagState.CATCHING_UP if copied > produced else LagState.FALLING_BEHIND
        drain_s = 0.0 if state is LagState.CAUGHT_UP else _drain(records, copied, produced)
        return Lag(records, seconds, copied, produced, drain_s, loss_s, state)

    def _seconds(self, column: int, progress: int, end: int) -> tuple[float | None, bool]:
        """Return how late the copy is, and whether the samples reach back that far. ``progress`` is below ``end``."""
        after_ms, after_end = self._last_ms, end
        for time_ms, ends in self._earlier:
            end_then = ends[column]
            if end_then < 0:
                continue
            if end_then > after_end:
                break  # the log was truncated or recreated: earlier samples are of another log
            if end_then <= progress:
                share = (progress - end_then) / (after_end - end_then)
                return self._ago_s(time_ms + share * (after_ms - time_ms)), True
            after_ms, after_end = time_ms, end_then
        if after_end == end:
            return None, False  # all records are older than the first sample: their age is not known
        ms_per_record = (self._last_ms - after_ms) / (end - after_end)
        return self._ago_s(after_ms - (after_end - progress) * ms_per_record), False

    def _ago_s(self, time_ms: float) -> float:
        return max(0.0, (self._now_ms - time_ms) / 1000)


def _drain(records: int, copied: float | None, produced: float | None) -> float | None:
    """Return the seconds until the lag is 0."""
    if copied is None or produced is None:
        return None
    return records / (copied - produced) if copied > produced else math.inf


def _loss(
    records: int,
    age_s: float | None,
    copied: float | None,
    retention_s: float | None,
    margin: int | None,
    freed: float | None,
) -> float | None:
    """Return the seconds until records expire uncopied.

    ``age_s`` is the age of the oldest uncopied record. ``margin`` is the number of offsets from the log's start to the
    progress; it is negative if uncopied records have expired already.
    """
    limits = []
    if retention_s is not None:
        newest_s = records / copied if copied else 0.0
        if age_s is not None:
            limits.append(retention_s - max(age_s, newest_s))
        elif newest_s >= retention_s:
            limits.append(retention_s - newest_s)  # the oldest record can only shorten the time
    if margin is not None and (freed or margin < 0):
        limits.append(margin / freed if freed else 0.0)
    return min(limits, default=None)


def _sum(rates: Iterator[float | None]) -> float | None:
    present = [rate for rate in rates if rate is not None]
    return sum(present) if present else None
