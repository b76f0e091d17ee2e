"""A model of any source log, copied with any failures: every offset is translated to the same record, and back.

The source has gaps, empty batches, and aborted transactions; batches are merged and cut; attempts fail, or are killed
at any point; the target has markers, aborted records and those of others; and some segments of the index are lost. What
is missing is then found in the logs. The other way, by sequences, is in tests/relay/partition/test_sequences_model.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirror.cluster.types import EpochEndOffset
from mirror.relay.offsets import extents
from mirror.relay.offsets.extents import span_of
from mirror.relay.offsets.index import Hole, OffsetIndex, Place, Translation
from mirror.relay.offsets.segments import EpochEnds, Segment, SegmentKey, encode, key_of, parse, segment_of, standing
from mirror.relay.partition.across_attempts.anchoring import anchor_at
from mirror.relay.partition.states import CopyState
from mirror.relay.progress import anchors
from mirror.relay.progress.target_log import TargetMark
from tests.examples import examples
from tests.fakes.record_batches import batch, build
from tests.relay.copy_harness import CopyHarness
from tests.relay.hand_context import TARGET
from tests.relay.offsets.logs import LogReader, resolved
from tests.relay.partition.test_machine_model import CopyModel, Entry, logs

_OWN, _FOREIGN = 7, 8
_LEADER = 4


def _ones(count: int) -> list[Entry]:
    """Return a log of batches with one record each."""
    return [Entry("data", base, (0,), 0) for base in range(count)]


class OffsetModel(CopyModel):
    """Besides, the target's log with all that takes offsets there, and the segments that were written."""

    def __init__(self, log: list[Entry], *, atomic: bool, batch_size: int, choose: Callable[[int], int]) -> None:
        self.target: list[tuple[int, int | None]] = []
        """(Producer id, value) of each offset; the value is None if no reader gets it."""
        self.segments: dict[SegmentKey, Segment] = {}
        self.lost = False
        """Whether a segment was not written, or an attempt that had ended has appended."""
        self.late_indexed = False
        """Whether the index has copies that are behind those of later records, perhaps instead of others."""
        self.unknown: set[int] = set()
        """Records whose copies it does not have, beside late ones of others: these count until it has both segments."""
        self.given: list[tuple[int, int]] = []
        """The positions that were said at any time: (source offset, target offset)."""
        self._late: list[int] = []
        """At least once, what an attempt has sent that was killed, and may append at any time."""
        self._open_from: int | None = None
        super().__init__(log, atomic=atomic, batch_size=batch_size, choose=choose)

    def _begin(self) -> CopyHarness:
        run = super()._begin()
        run.context.leader = (1, _LEADER)
        return run

    # --- events

    def step(self) -> None:
        event = self.choose(30)
        if event == 29:
            self.target.append((_FOREIGN, -1))
        elif event < 6 and self._late:
            self._append_late(self._late)
            self._late, self.lost = [], True
        elif self.run.copy.state is not CopyState.DONE:
            in_flight = not self.atomic and self.run.unanswered
            if event == 28 or (event >= 25 and in_flight):
                self._kill()
        super().step()
        self._write_segments()

    def _kill(self) -> None:
        if not self.atomic and (pending := self.run.unanswered):
            self._late = [int(value) for value in self.run.writer.sent[pending[0]].values]
        self._end_transaction(commit=False)
        self.run = self._begin()
        self.lost = True

    def _append_late(self, values: list[int]) -> None:
        """The attempt was not dead: it may also write to the index what it has appended."""
        base = len(self.target)
        self.target += [(_OWN, value) for value in values]
        if self.stored is None or self.stored.target is None or self.choose(3) == 0:
            return
        anchor = anchor_at(self.stored, self.stored.target, 0, exactly_once=False)
        found = [extents.Extent(value, base + number, 1) for number, value in enumerate(values)]
        for span in span_of(values[0], values[-1] + 1, base, found):
            one = segment_of(span, anchor)
            self.segments[key_of(TARGET, one)] = one
            self.late_indexed = True

    def _write_segments(self) -> None:
        for one in self.run.context.segments:
            assert parse(encode(one)) == one
            if self.choose(6) == 5:
                self.lost = True
            else:
                self.segments[key_of(TARGET, one)] = one
        self.run.context.segments.clear()

    def _open(self) -> None:
        self._end_transaction(commit=False)
        if self.progress is None:
            self.mark = TargetMark(topic_id="its-id", end=len(self.target), leader_epoch=_LEADER)
        super()._open()

    def _write(self, values: list[int]) -> int:
        super()._write(values)
        base_offset = len(self.target)
        if self.atomic and self._open_from is None:
            self._open_from = base_offset
        self.target += [(_OWN, value) for value in values]
        return base_offset

    def _end_transaction(self, *, commit: bool) -> None:
        if self._open_from is None:
            return
        if not commit:
            for offset in range(self._open_from, len(self.target)):
                producer, value = self.target[offset]
                self.target[offset] = producer, None if producer == _OWN else value
        self.target.append((_OWN, None))
        self._open_from = None

    def _store(self, offset: int) -> None:
        super()._store(offset)
        self._end_transaction(commit=True)

    def _abort(self) -> None:
        super()._abort()
        if self.run.copy.state is not CopyState.ABORTING:
            self._end_transaction(commit=False)

    # --- what must hold

    def check(self) -> None:
        """Every offset, by content, in both directions, with the index as it is."""
        stored = self.stored
        if self.progress is None or stored is None or stored.target is None:
            return
        ends = EpochEnds({}, {_LEADER: EpochEndOffset(_LEADER, len(self.target))})
        present = standing(self.segments.values(), stored, ends, target_topic_id="its-id", exactly_once=self.atomic)
        self.readers = self._readers()
        self.index = OffsetIndex(
            present,
            self.progress,
            exactly_once=self.atomic,
            beginning=stored.beginning,
            target_end=stored.target.indexed_end(exactly_once=self.atomic),
        )
        copied = self.values(self.progress)
        self.unknown = {
            value
            for value in copied
            if self.late_indexed and self._resolved(self.index.translate, value).place is Place.UNKNOWN
        }
        for offset in range(self.end + 2):
            found = self._resolved(self.index.translate, offset)
            if offset > self.progress:
                assert found.place is Place.NOT_COPIED
                assert found.offset is not None or self.late_indexed
                if found.offset is None:
                    continue
                self.given.append((self.progress, found.offset))
            elif found.place is not Place.UNKNOWN or not self.late_indexed:
                following = next((value for value in copied if value >= offset), None)
                assert found.place is (
                    Place.END if following is None else Place.RECORD if following == offset else Place.NEXT
                )
                self._check_position(found.offset, offset, following)
        self._check_back()

    def _check_position(self, target: int | None, offset: int, following: int | None) -> None:
        assert target is not None, self.segments
        visible = self._visible()
        if following is not None:
            assert visible[target] == following
        if not any(value >= offset for value in self.unknown):
            self.given.append((offset, target))
        behind = {value for at, value in visible.items() if at >= target}
        copied = {value for value in self.values(self.progress or 0) if value >= offset}
        assert behind >= copied - self.unknown, "nothing is skipped"
        last = max((at for at, value in visible.items() if value == following), default=target)
        # Its segment is written later, or not at all if the attempt does not know that it has committed.
        is_late = target != last and self._is_indexed(target) and not self._is_indexed(last)
        if self.atomic or (following is not None and not self.lost and not is_late):
            assert target == last, "the last copy counts"

    def _is_indexed(self, target: int) -> bool:
        extents_of_all = (extent for one in self.segments.values() for extent in one.extents)
        return any(extent.target <= target < extent.target + extent.length for extent in extents_of_all)

    def check_given(self) -> None:
        """Where a group was sent at any time it reads all that it had not read."""
        visible = self._visible()
        for offset, target in self.given:
            behind = {value for at, value in visible.items() if at >= target}
            assert behind >= {value for value in self.values(self.end) if value >= offset}, (offset, target)

    def _check_back(self) -> None:
        visible = self._visible()
        for offset in range(len(self.target)):
            found = self._resolved(self.index.translate_back, offset)
            following = next((visible[at] for at in sorted(visible) if at >= offset), None)
            if found.place is Place.UNKNOWN and not self.late_indexed:
                assert self.index.target_begin is not None
                assert offset < self.index.target_begin
                assert offset not in visible
            elif found.place is Place.UNKNOWN:
                continue
            elif following is None or following >= (self.progress or 0):
                assert found.place is Place.END or not self.atomic
            elif found.place is Place.END:
                assert not self.atomic
            elif not self.atomic and found.place is Place.NEXT:
                # The index may not know every copy of a record: then the next one that it knows is meant.
                assert found.offset is not None
                read = {value for at, value in visible.items() if at < offset}
                assert read >= set(self.values(found.offset)) - self.unknown, "nothing is skipped"
            else:
                assert found.offset == following, offset
                assert found.place is (Place.RECORD if offset in visible else Place.NEXT)

    def _visible(self) -> dict[int, int]:
        return {at: value for at, (producer, value) in enumerate(self.target) if producer == _OWN and value is not None}

    def _readers(self) -> tuple[LogReader, LogReader]:
        source = LogReader(
            [entry.make() for entry in self.log], [(9, entry.base) for entry in self.log if entry.kind == "aborted"]
        )
        committed = self.target if self._open_from is None else self.target[: self._open_from]
        batches = [
            batch(build([b"%d" % value], base_offset=at, producer_id=producer))
            for at, (producer, value) in enumerate(committed)
            if value is not None
        ]
        return source, LogReader(batches)

    def _resolved(self, translate: Callable[[int], Translation | Hole], offset: int) -> Translation:
        own = frozenset({_OWN})
        return resolved(self.index, translate, offset, *self.readers, exactly_once=self.atomic, producer_ids=own)


@given(
    log=logs(),
    atomic=st.booleans(),
    batch_size=st.sampled_from([1, 10_000, 262_144]),
    seed=st.integers(0, 2**32),
    steps=st.integers(0, 150),
    interval_ms=st.sampled_from([0, 1_500, 60_000]),
    most_extents=st.sampled_from([1, 3, 512]),
)
# The end that was stored last is below the offset of the last record: others have appended in between.
@example(log=_ones(2), atomic=True, batch_size=1, seed=1, steps=40, interval_ms=1_500, most_extents=512)
@settings(max_examples=examples(60, 150), deadline=None)
def test_every_offset_is_translated_to_the_same_record_and_back(
    log: list[Entry], atomic: bool, batch_size: int, seed: int, steps: int, interval_ms: int, most_extents: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anchors, "INTERVAL_MS", interval_ms)
        patch.setattr(extents, "MAX_EXTENTS", most_extents)
        model = OffsetModel(log, atomic=atomic, batch_size=batch_size, choose=random.Random(seed).randrange)
        for _ in range(steps):
            model.step()
            if model.choose(15) == 0:
                model.check()
        model.finish()
        model.check()
        model.check_given()
