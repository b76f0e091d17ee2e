"""A bounded history of many partitions' offsets; recent samples are closer together than old ones. Pure."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from mirror.cluster.types import TopicPartition

WINDOW_MS: Final = 60_000
"""The window over which rates are measured."""
MAX_SAMPLES: Final = 24
UNKNOWN: Final = -1

_STEPS: Final = 6
"""Samples per window: enough for three slopes without a common sample."""
_SLOPES: Final = 3
_FULL_WINDOWS: Final = 1.25
"""Samples of this many windows have all their columns: the oldest sample of a window may be one step older."""


class PartitionOffsets(NamedTuple):
    """The offsets of one partition. None means not known (no leader) or not existing (no progress yet)."""

    earliest: int | None
    """The log start offset."""
    end: int | None
    """The last stable offset."""
    progress: int | None
    """The next offset to copy."""


@dataclass(slots=True)
class OffsetSample:
    """The offsets of all partitions at one time, as three columns; :data:`UNKNOWN` replaces None.

    An old sample has its ends only: they are needed for the age of records, and rates cover the last minute only.
    """

    time_ms: int
    ends: array[int]
    progress: array[int] | None
    earliest: array[int] | None


class OffsetHistory:
    """At most :data:`MAX_SAMPLES` samples of all partitions. Not thread-safe."""

    def __init__(self, *, window_ms: int = WINDOW_MS) -> None:
        self._window_ms: Final = window_ms
        self.tps: list[TopicPartition] = []
        """The partitions in the order of the columns."""
        self.samples: list[OffsetSample] = []
        """In the order of time."""
        self.previous_ms = 0
        """The time of the sample before the last, even if it was removed; 0 if there was none."""
        self.moved_ms = array("q")
        """For each partition, the last sample at which its progress had moved or it first had records to copy."""

    def add_sample(self, time_ms: int, seen: Mapping[TopicPartition, PartitionOffsets]) -> None:
        """Add the offsets of all partitions at ``time_ms`` (ms since 1970), and drop partitions that are not ``seen``.

        If the clock was set back, the earlier samples are useless and dropped.
        """
        if self.samples and time_ms < self.samples[-1].time_ms:
            self.samples.clear()
            self.tps, self.previous_ms = [], 0
        tps = list(seen)
        if tps != self.tps:
            self._rearrange(tps, time_ms)
        columns = zip(*seen.values(), strict=True) if seen else ((),) * 3
        earliest, ends, progress = (_column(offsets) for offsets in columns)
        if self.samples:
            last = self.samples[-1]
            rows = zip(progress, last.progress or (), last.ends, self.moved_ms, strict=True)
            self.moved_ms = array(
                "q", [time_ms if new != old or old >= end else since_ms for new, old, end, since_ms in rows]
            )
            if last.time_ms == time_ms:
                self.samples.pop()  # two samples of the same time have no slope
            else:
                self.previous_ms = last.time_ms
        self.samples.append(OffsetSample(time_ms, ends, progress, earliest))
        self._thin()

    def _rearrange(self, tps: list[TopicPartition], time_ms: int) -> None:
        """Rearrange the columns to the order of ``tps``."""
        indexes = {tp: index for index, tp in enumerate(self.tps)}
        order = [indexes.get(tp, UNKNOWN) for tp in tps]
        for sample in self.samples:
            sample.ends = _reordered(sample.ends, order, UNKNOWN)
            sample.progress = None if sample.progress is None else _reordered(sample.progress, order, UNKNOWN)
            sample.earliest = None if sample.earliest is None else _reordered(sample.earliest, order, UNKNOWN)
        self.moved_ms = _reordered(self.moved_ms, order, time_ms)
        self.tps = tps

    def _thin(self) -> None:
        """Remove samples that add little.

        The gap between two samples may be half their age, but inside the window not more than a step.
        """
        samples = self.samples
        now_ms, step_ms, full_ms = samples[-1].time_ms, self._window_ms / _STEPS, self._window_ms * _FULL_WINDOWS
        retained = samples[:1]
        for sample, after in itertools.pairwise(samples[1:]):
            age_ms = now_ms - sample.time_ms
            if after.time_ms - retained[-1].time_ms > (min(step_ms, age_ms / 2) if age_ms <= full_ms else age_ms / 2):
                retained.append(sample)
        self.samples = [*retained[-(MAX_SAMPLES - 1) :], samples[-1]] if len(samples) > 1 else retained
        for sample in self.samples[: -self._recent_count()]:
            sample.progress = sample.earliest = None

    def _recent_count(self) -> int:
        """Return how many of the last samples rates use: those of a window, but at least three."""
        since_ms = self.samples[-1].time_ms - self._window_ms * _FULL_WINDOWS
        return max(sum(sample.time_ms >= since_ms for sample in self.samples), _SLOPES)

    def recent(self) -> tuple[OffsetSeries, OffsetSeries, OffsetSeries]:
        """Return the recent series of start, end and progress. There is at least one sample."""
        samples = self.samples[-self._recent_count() :]
        # An old sample that counts as recent because others were removed has its ends only.
        return (
            OffsetSeries([(sample.time_ms, sample.earliest) for sample in samples if sample.earliest is not None]),
            OffsetSeries([(sample.time_ms, sample.ends) for sample in samples]),
            OffsetSeries([(sample.time_ms, sample.progress) for sample in samples if sample.progress is not None]),
        )


class OffsetSeries:
    """One kind of offset of all partitions over time; ``last`` holds the newest values."""

    def __init__(self, columns: Sequence[tuple[int, array[int]]]) -> None:
        self.last: Final = columns[-1][1]
        self._columns: Final = columns

    def rates(self) -> list[float | None]:
        """Return the rate of each partition in records/s, or None if it is not known.

        It is the median of up to three slopes, between the newest three samples and the oldest three.
        """
        count = min(_SLOPES, len(self._columns) // 2)
        if not count:
            return [None] * len(self.last)
        slopes = [
            _slopes(new, old, (new_ms - old_ms) / 1000)
            for (new_ms, new), (old_ms, old) in zip(self._columns[-count:], self._columns[:count], strict=True)
        ]
        if count == _SLOPES:
            rates = [_median(row) if None in row else sorted(row)[1] for row in zip(*slopes, strict=True)]
        else:
            rates = [_median(row) for row in zip(*slopes, strict=True)]
        return [self._latest_rate(index) if rate is None else rate for index, rate in enumerate(rates)]

    def _latest_rate(self, index: int) -> float | None:
        """Return the rate since the offset was first known, or since it last fell."""
        last_ms, first_ms = self._columns[-1][0], self._columns[-1][0]
        last = first = self.last[index]
        for time_ms, column in reversed(self._columns):
            if not 0 <= column[index] <= first:
                break
            first_ms, first = time_ms, column[index]
        return (last - first) * 1000 / (last_ms - first_ms) if first_ms < last_ms else None


def _slopes(news: array[int], olds: array[int], span_s: float) -> list[float | None]:
    return [(new - old) / span_s if new >= old >= 0 else None for new, old in zip(news, olds, strict=True)]


def _median(slopes: tuple[float | None, ...]) -> float | None:
    present = sorted([slope for slope in slopes if slope is not None])
    if not present:
        return None
    half = len(present) // 2
    return present[half] if len(present) % 2 else (present[half - 1] + present[half]) / 2


def _column(offsets: Iterable[int | None]) -> array[int]:
    return array("q", [UNKNOWN if offset is None else offset for offset in offsets])


def _reordered(column: array[int], order: Sequence[int], default: int) -> array[int]:
    return array("q", [default if index < 0 else column[index] for index in order])
