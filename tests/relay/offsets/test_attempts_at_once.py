"""A model of attempts at least once, of which several append between each other: no group skips a record.

Nothing fences an attempt: one that is thought to be dead may append at any time what it has read, and write it to the
index. Only the newest one commits, and its segments are not lost: what it has appended in front of a late copy could
not be known otherwise.
"""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.relay.offsets.extents import AppendedExtents
from mirror.relay.offsets.index import OffsetIndex, Place, Translation
from mirror.relay.offsets.segments import Segment, segment_of
from mirror.relay.progress.committed import Beginning
from tests.examples import examples
from tests.fakes.record_batches import batch, build
from tests.relay.offsets.logs import LogReader, resolved
from tests.relay.offsets.test_segments import END

_ANCHOR = replace(END, exactly_once=False)
_MOST_ATTEMPTS = 3


class Attempt:
    """Appends from a source offset on, in order."""

    def __init__(self, start: int) -> None:
        self.next = start
        self.extents = AppendedExtents()
        self.extents.restart(start, None)


class Copies:
    """The source has a record at some offsets, whose value is its offset; the target's other offsets are None."""

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(seed)
        self.end = self._rng.randint(1, 20)
        self.source = sorted(self._rng.sample(range(self.end), self._rng.randint(1, self.end)))
        self.target: list[int | None] = []
        self.copied_to = self.mark_end = 0
        self._begun = [Attempt(0)]
        self.segments: dict[tuple[int, int], Segment] = {}
        self.said: list[tuple[int, int]] = []

    @property
    def attempts(self) -> list[Attempt]:
        """Those that are alive, the newest one last."""
        return self._begun[-_MOST_ATTEMPTS:]

    # --- events

    def step(self) -> None:
        attempt = self._rng.choice([*self.attempts, self.attempts[-1]])
        match self._rng.randrange(12):
            case 0:
                self.target.append(None)
            case 1:
                self.write_segments(self.attempts[-1])
                self._begun.append(Attempt(self.copied_to))
            case 2 | 3:
                self.commit(self.attempts[-1])
            case 4:
                self.write_segments(attempt)
            case 5:
                self.check()
            case _:
                self.append(attempt, self._rng.randint(1, 3))

    def append(self, attempt: Attempt, count: int) -> None:
        for offset in [one for one in self.source if one >= attempt.next][:count]:
            attempt.extents.append(offset, len(self.target), 1, (), offset + 1)
            self.target.append(offset)
            attempt.next = offset + 1

    def commit(self, attempt: Attempt) -> None:
        if attempt.next > self.copied_to:
            self.copied_to, self.mark_end = attempt.next, max(self.mark_end, attempt.extents.target_end)

    def write_segments(self, attempt: Attempt) -> None:
        number = self._begun.index(attempt)
        attempt.extents.commit()
        for span in attempt.extents.take():
            if attempt is self.attempts[-1] or self._rng.randrange(3):
                self.segments[number, span.start] = segment_of(span, _ANCHOR)

    # --- what must hold

    def check(self) -> None:
        index = OffsetIndex(
            self.segments.values(),
            self.copied_to,
            exactly_once=False,
            beginning=Beginning(0, 0),
            target_end=self.mark_end,
        )
        readers = _log(dict(zip(self.source, self.source, strict=True))), _log(dict(enumerate(self.target)))
        for offset in range(self.end + 1):
            self._check_there(offset, resolved(index, index.translate, offset, *readers, exactly_once=False))
        for offset in range(len(self.target) + 1):
            self._check_back(offset, resolved(index, index.translate_back, offset, *readers, exactly_once=False))

    def _check_there(self, offset: int, found: Translation) -> None:
        following = next((one for one in self.source if offset <= one < self.copied_to), None)
        if found.offset is None:
            return
        self.said.append((min(offset, self.copied_to), found.offset))
        if found.place is Place.RECORD:
            assert self.target[found.offset] == offset
        elif found.place is Place.NEXT:
            assert self.target[found.offset] == following
        else:
            assert following is None

    def _check_back(self, offset: int, found: Translation) -> None:
        if found.offset is None:
            return
        if found.place is Place.RECORD:
            assert self.target[offset] == found.offset
        read = {one for one in self.target[:offset] if one is not None}
        assert read >= {one for one in self.source if one < found.offset}, (offset, found)

    def finish(self) -> None:
        """The newest attempt copies all."""
        last = self.attempts[-1]
        self.append(last, len(self.source))
        last.next = self.end
        self.commit(last)
        self.write_segments(last)
        self.check()
        for offset, target in self.said:
            behind = {one for one in self.target[target:] if one is not None}
            assert behind >= {one for one in self.source if one >= offset}, (offset, target)


def _log(values: dict[int, int | None]) -> LogReader:
    return LogReader([batch(build([b"%d" % one], base_offset=at)) for at, one in values.items() if one is not None])


@given(st.integers(0, 2**32))
@settings(max_examples=examples(12, 30), deadline=None)
def test_no_group_skips_a_record_whatever_attempts_append_between_each_other(seed: int) -> None:
    for number in range(10):
        copies = Copies(f"{seed} {number}")
        for _ in range(60):
            copies.step()
        copies.finish()
