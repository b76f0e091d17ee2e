"""The history of many partitions' offsets: bounded, and closer together the younger it is. Pure."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from mirror.cluster.types import TopicPartition

WINDOW_MS: Final = 60_000
"""What rates are measured over."""
MAX_SAMPLES: Final = 24
UNKNOWN: Final = -1

_STEPS: Final = 6
"""The window is looked at in steps of a sixth of it: enough for three slopes without a look in common."""
_SLOPES: Final = 3
_KEPT_WHOLE: Final = 1.25
"""How many windows of looks have all their columns: the oldest of a window may be a step older than it."""


class PartitionOffsets(NamedTuple):
    """What a look shows of a partition: its log's start and end, and the next offset to copy.

    ``end`` is the last stable offset. None: not known (a partition without a leader), or not there (no progress yet).
    """

    earliest: int | None
    end: int | None
    progress: int | None


@dataclass(slots=True)
class OffsetSample:
    """One look, as a column of offsets for each of the three; :data:`UNKNOWN` where there is none.

    An old one keeps its ends only: they tell how late a partition is, and rates are of the last minute.
    """

    time_ms: int
    ends: array[int]
    progress: array[int] | None
    earliest: array[int] | None


class OffsetHistory:
    """At most :data:`MAX_SAMPLES` looks at all partitions. Not for several threads at once.

    ``looks`` are in the order of time, ``tps`` the partitions, in the order of the columns. ``before_ms`` is when the
    look before the last was (0: there was none), whether it is kept or not. ``moved_ms``: the look at which each
    partition was last seen to have moved, or to have something to copy at last.
    """

    def __init__(self, *, window_ms: int = WINDOW_MS) -> None:
        self._window_ms: Final = window_ms
        self.tps: list[TopicPartition] = []
        self.samples: list[OffsetSample] = []
        self.before_ms = 0
        self.moved_ms = array("q")

    def add_sample(self, time_ms: int, seen: Mapping[TopicPartition, PartitionOffsets]) -> None:
        """All partitions as they were at ``time_ms`` (ms since 1970); those that are not ``seen`` are forgotten.

        A clock that was set back makes the looks before worthless: they are forgotten, too.
        """
        if self.samples and time_ms < self.samples[-1].time_ms:
            self.samples.clear()
            self.tps, self.before_ms = [], 0
        tps = list(seen)
        if tps != self.tps:
            self._rearrange(tps, time_ms)
        earliest, ends, progress = (_column(each) for each in (zip(*seen.values(), strict=True) if seen else ((),) * 3))
        if self.samples:
            last = self.samples[-1]
            rows = zip(progress, last.progress or (), last.ends, self.moved_ms, strict=True)
            self.moved_ms = array(
                "q", [time_ms if new != old or old >= end else since_ms for new, old, end, since_ms in rows]
            )
            if last.time_ms == time_ms:
                self.samples.pop()  # in no time nothing has a rate
            else:
                self.before_ms = last.time_ms
        self.samples.append(OffsetSample(time_ms, ends, progress, earliest))
        self._thin()

    def _rearrange(self, tps: list[TopicPartition], time_ms: int) -> None:
        """From now on columns are of ``tps``."""
        places = {tp: place for place, tp in enumerate(self.tps)}
        taken = [places.get(tp, UNKNOWN) for tp in tps]
        for look in self.samples:
            look.ends = _taken(look.ends, taken, UNKNOWN)
            look.progress = None if look.progress is None else _taken(look.progress, taken, UNKNOWN)
            look.earliest = None if look.earliest is None else _taken(look.earliest, taken, UNKNOWN)
        self.moved_ms = _taken(self.moved_ms, taken, time_ms)
        self.tps = tps

    def _thin(self) -> None:
        """Forget looks that tell little: gaps may be as wide as half their age, and as a step inside the window."""
        looks = self.samples
        now_ms, step_ms, whole_ms = looks[-1].time_ms, self._window_ms / _STEPS, self._window_ms * _KEPT_WHOLE
        kept = looks[:1]
        for look, after in itertools.pairwise(looks[1:]):
            age_ms = now_ms - look.time_ms
            if after.time_ms - kept[-1].time_ms > (min(step_ms, age_ms / 2) if age_ms <= whole_ms else age_ms / 2):
                kept.append(look)
        self.samples = [*kept[-(MAX_SAMPLES - 1) :], looks[-1]] if len(looks) > 1 else kept
        for look in self.samples[: -self._recent_count()]:
            look.progress = look.earliest = None

    def _recent_count(self) -> int:
        """How many of the last looks rates are of: those of a window, but three at least."""
        since_ms = self.samples[-1].time_ms - self._window_ms * _KEPT_WHOLE
        return max(sum(look.time_ms >= since_ms for look in self.samples), _SLOPES)

    def recent(self) -> tuple[Series, Series, Series]:
        """How start, end and progress went lately. There has been a look."""
        looks = self.samples[-self._recent_count() :]
        # One that is recent only because others were forgotten has its ends alone.
        return (
            Series([(look.time_ms, look.earliest) for look in looks if look.earliest is not None]),
            Series([(look.time_ms, look.ends) for look in looks]),
            Series([(look.time_ms, look.progress) for look in looks if look.progress is not None]),
        )


class Series:
    """How a column of offsets went; ``last`` is what it came to."""

    def __init__(self, columns: Sequence[tuple[int, array[int]]]) -> None:
        self.last: Final = columns[-1][1]
        self._columns: Final = columns

    def rates(self) -> list[float | None]:
        """The rate of each place, in records/s; None where it is not known.

        It is the median of up to three slopes, between the newest three looks and the oldest three.
        """
        count = min(_SLOPES, len(self._columns) // 2)
        if not count:
            return [None] * len(self.last)
        slopes = [
            _slopes(new, old, (new_ms - old_ms) / 1000)
            for (new_ms, new), (old_ms, old) in zip(self._columns[-count:], self._columns[:count], strict=True)
        ]
        if count == _SLOPES:
            rates = [_middle(each) if None in each else sorted(each)[1] for each in zip(*slopes, strict=True)]
        else:
            rates = [_middle(each) for each in zip(*slopes, strict=True)]
        return [self._lately(place) if rate is None else rate for place, rate in enumerate(rates)]

    def _lately(self, place: int) -> float | None:
        """The rate since the offset was first known, or last fell."""
        last_ms, first_ms = self._columns[-1][0], self._columns[-1][0]
        last = first = self.last[place]
        for time_ms, column in reversed(self._columns):
            if not 0 <= column[place] <= first:
                break
            first_ms, first = time_ms, column[place]
        return (last - first) * 1000 / (last_ms - first_ms) if first_ms < last_ms else None


def _slopes(news: array[int], olds: array[int], span_s: float) -> list[float | None]:
    return [(new - old) / span_s if new >= old >= 0 else None for new, old in zip(news, olds, strict=True)]


def _middle(slopes: tuple[float | None, ...]) -> float | None:
    known = sorted([each for each in slopes if each is not None])
    if not known:
        return None
    half = len(known) // 2
    return known[half] if len(known) % 2 else (known[half - 1] + known[half]) / 2


def _column(offsets: Iterable[int | None]) -> array[int]:
    return array("q", [UNKNOWN if each is None else each for each in offsets])


def _taken(column: array[int], places: Sequence[int], default: int) -> array[int]:
    return array("q", [default if place < 0 else column[place] for place in places])
