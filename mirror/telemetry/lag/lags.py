"""How far behind each partition's copy is, whether it comes nearer, and whether it comes in time. Pure.

One :class:`LagTracker` is a flow's history: every so often all its partitions are sampled at once (``look``), and
``estimates`` derives the lags from the samples. Of a partition, with the source's ``end`` and the copy's ``progress``::

    records    end - progress
    seconds    now - (when the source's end was where the progress is now)
    copied     records/s of the progress, produced: of the end, freed: of the log's start
    drain      records / (copied - produced)
    loss       the smaller of: retention - max(seconds, records / copied)
                               (progress - start) / freed

**Seconds** are those of kafka-lag-exporter (its LookupTable): interpolated between two looks, extrapolated by the mean
rate of all looks where they do not reach back so far. They are the time since the oldest uncopied record came, at most.

**Rates** are of about a minute. Each is the median of three slopes, between the newest three looks and the oldest three
of that minute, no look in two of them: a single look that came late, or whose brokers answered late, spoils one slope
and not the rate (Theil's incomplete method). A slope that falls is none: the topic was made anew, or the log cut back.

**Loss** is how much room there is before records expire uncopied; from 0 down they do. The oldest uncopied record is
copied next, and leaves ``retention - seconds`` from now. The newest one there is now is copied after
``records / copied``, and is that old then. (Not after the drain: that waits for what comes meanwhile, too, and is
infinite for every copy that keeps pace.) A copy that stands still says nothing of how long; then the oldest counts
alone. Where the log's start moves, be it for ``retention.bytes`` or somebody's deletes, it comes to where the progress
is now in ``(progress - start) / freed``. An extrapolated age beyond the retention is not believed: the record is there.
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
"""Who is no later than this has nothing but what is on its way: a copy that follows always has some records to go."""


class LagState(enum.StrEnum):
    """How a partition is, the worst first."""

    LOSING = "losing"
    """Records expire before they are copied."""
    NO_LEADER = "no leader"
    """The source does not tell its end."""
    STUCK = "stuck"
    """There is something to copy, and nothing was for long."""
    FALLING_BEHIND = "falling behind"
    """It is copied no faster than it grows."""
    BEHIND = "behind"
    """There is something to copy, and one look does not tell which way it goes."""
    NOT_BEGUN = "not begun"
    CATCHING_UP = "catching up"
    CAUGHT_UP = "caught up"
    """Nothing is left but what is on its way."""

    @property
    def unhealthy(self) -> bool:
        """Whether somebody should look after it."""
        return self in _SICK

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return _RANKS[self]


_RANKS: Final = {state: rank for rank, state in enumerate(LagState)}
_SICK: Final = frozenset({LagState.LOSING, LagState.NO_LEADER, LagState.STUCK, LagState.FALLING_BEHIND})


class Lag(NamedTuple):
    """One partition's; None where it is not known. The formulas are in this module's docstring.

    ``records`` >= 0; ``seconds`` >= 0, 0 without lag; rates in records/s, >= 0; ``drain_s`` in seconds, 0 where it is
    caught up, ``inf`` where the lag does not shrink; ``loss_s`` in seconds, negative where it is too late.
    """

    records: int | None
    seconds: float | None
    copied_per_s: float | None
    produced_per_s: float | None
    drain_s: float | None
    loss_s: float | None
    state: LagState


class LagTotals(NamedTuple):
    """Of many partitions: sums of ``records`` and rates as far as they are known (rates None where none is).

    ``seconds`` and ``drain_s`` are those of the partition that is worst off, ``loss_s`` the least; None where no
    partition has one. ``unknown`` counts partitions whose lag is not known, ``states`` all of them, the worst first.
    """

    records: int
    unknown: int
    seconds: float | None
    copied_per_s: float | None
    produced_per_s: float | None
    drain_s: float | None
    loss_s: float | None
    states: Counter[LagState]


def totals(lags: Iterable[Lag]) -> LagTotals:
    """What ``lags`` come to together."""
    every = list(lags)
    return LagTotals(
        records=sum(one.records or 0 for one in every),
        unknown=sum(one.records is None for one in every),
        seconds=max((one.seconds for one in every if one.seconds is not None), default=None),
        copied_per_s=_sum(one.copied_per_s for one in every),
        produced_per_s=_sum(one.produced_per_s for one in every),
        drain_s=max((one.drain_s for one in every if one.drain_s is not None), default=None),
        loss_s=min((one.loss_s for one in every if one.loss_s is not None), default=None),
        states=Counter(sorted((one.state for one in every), key=_RANKS.__getitem__)),
    )


def worst_first(tp: TopicPartition, lag: Lag) -> tuple[int, float, int, TopicPartition]:
    """A key to sort partitions by: by state, then by how late they are, then by how much is left."""
    return lag.state.rank, -(lag.seconds or 0.0), -(lag.records or 0), tp


class LagTracker:
    """A flow's partitions, watched. Not for several threads at once; 100,000 partitions take about 40 MB."""

    def __init__(self, *, window_ms: int = WINDOW_MS) -> None:
        self._history: Final = OffsetHistory(window_ms=window_ms)

    def add_sample(self, time_ms: int, seen: Mapping[TopicPartition, PartitionOffsets]) -> None:
        """All partitions as they were at ``time_ms`` (ms since 1970); those that are not ``seen`` are forgotten.

        A clock that was set back makes the looks before worthless: they are forgotten, too.
        """
        self._history.add_sample(time_ms, seen)

    def estimates(
        self,
        now_ms: int,
        retention_ms: Mapping[str, int | None] | None = None,
        *,
        stuck_after_s: float = STUCK_AFTER_S,
    ) -> dict[TopicPartition, Lag]:
        """What the looks up to now make of each partition; ``now_ms`` is no earlier than the last of them.

        ``retention_ms`` is by source topic; None, or no topic: records stay, or nobody knows for how long. A partition
        is stuck that did not move for longer than ``stuck_after_s``; ``inf`` where nothing is meant to be copied now.
        """
        history = self._history
        if not history.samples:
            return {}
        looks = _Looks(history.samples, now_ms, max(CAUGHT_UP_S, (now_ms - (history.before_ms or now_ms)) / 1000))
        retention_s = {topic: ms / 1000 for topic, ms in (retention_ms or {}).items() if ms is not None}
        still_ms = now_ms - stuck_after_s * 1000
        earliest, ends, progress = history.recent()
        rows = zip(
            history.tps,
            zip(earliest.last, ends.last, progress.last, strict=True),
            zip(progress.rates(), ends.rates(), earliest.rates(), strict=True),
            history.moved_ms,
            strict=True,
        )
        return {
            tp: looks.lag(place, offsets, rates, moved_ms < still_ms, retention_s.get(tp.topic))
            for place, (tp, offsets, rates, moved_ms) in enumerate(rows)
        }


class _Looks:
    """What the looks say of one partition after the other."""

    def __init__(self, looks: Sequence[OffsetSample], now_ms: int, caught_up_s: float) -> None:
        self._last_ms: Final = looks[-1].time_ms
        self._before: Final = [(look.time_ms, look.ends) for look in reversed(looks[:-1])]
        self._now_ms: Final = now_ms
        self._caught_up_s: Final = caught_up_s

    def lag(
        self,
        place: int,
        offsets: tuple[int, int, int],
        rates: tuple[float | None, float | None, float | None],
        still: bool,
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
        seconds, seen = self._seconds(place, progress, end)
        believed = seconds if seen or seconds is None or retention_s is None or seconds <= retention_s else None
        loss_s = _loss(records, believed, copied, retention_s, progress - start if start >= 0 else None, freed)
        if loss_s is not None and loss_s <= 0:
            state = LagState.LOSING
        elif still:
            state = LagState.STUCK
        elif seconds is not None and seconds <= self._caught_up_s:
            state = LagState.CAUGHT_UP
        elif copied is None or produced is None:
            state = LagState.BEHIND
        else:
            state = LagState.CATCHING_UP if copied > produced else LagState.FALLING_BEHIND
        drain_s = 0.0 if state is LagState.CAUGHT_UP else _drain(records, copied, produced)
        return Lag(records, seconds, copied, produced, drain_s, loss_s, state)

    def _seconds(self, place: int, progress: int, end: int) -> tuple[float | None, bool]:
        """How late it is, and whether the looks reach back so far. ``progress`` is before ``end``."""
        after_ms, after_end = self._last_ms, end
        for time_ms, ends in self._before:
            there = ends[place]
            if there < 0:
                continue
            if there > after_end:
                break  # the log was cut back, or made anew: what came before was another one
            if there <= progress:
                share = (progress - there) / (after_end - there)
                return self._ago_s(time_ms + share * (after_ms - time_ms)), True
            after_ms, after_end = time_ms, there
        if after_end == end:
            return None, False  # nothing came since the first look: nobody knows when it did
        ms_each = (self._last_ms - after_ms) / (end - after_end)
        return self._ago_s(after_ms - (after_end - progress) * ms_each), False

    def _ago_s(self, time_ms: float) -> float:
        return max(0.0, (self._now_ms - time_ms) / 1000)


def _drain(records: int, copied: float | None, produced: float | None) -> float | None:
    if copied is None or produced is None:
        return None
    return records / (copied - produced) if copied > produced else math.inf


def _loss(
    records: int,
    seconds: float | None,
    copied: float | None,
    retention_s: float | None,
    passed: int | None,
    freed: float | None,
) -> float | None:
    """``passed`` are the offsets from the log's start to the progress: fewer than none where records are gone."""
    rooms = []
    if retention_s is not None:
        newest_s = records / copied if copied else 0.0
        if seconds is not None:
            rooms.append(retention_s - max(seconds, newest_s))
        elif newest_s >= retention_s:
            rooms.append(retention_s - newest_s)  # the oldest can only make it worse
    if passed is not None and (freed or passed < 0):
        rooms.append(passed / freed if freed else 0.0)
    return min(rooms, default=None)


def _sum(rates: Iterator[float | None]) -> float | None:
    known = [each for each in rates if each is not None]
    return sum(known) if known else None
