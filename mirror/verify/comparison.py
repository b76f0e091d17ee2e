"""Compares one partition of a flow's source with that of its target. Pure.

::

    source ──► SourceCursor ─┐ batches with the same bytes: equal, without decoding
                             ├► records that are equal, one by one
    target ──► TargetCursor ─┘ otherwise: windows of both sides up to the next common record ──► Findings

Both logs are read once; a compacted one that lacks deletions is read again. The source is read beyond what is copied,
as far as the target has more records: a copy that is running has appended them, and has not committed its progress yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from mirror.consumer.fetched import Fetched
from mirror.errors import CorruptBatch
from mirror.verify.compaction import Removals
from mirror.verify.coverage import Coverage
from mirror.verify.cursors import Cursor, DamagedBatch, SourceCursor, TargetCursor
from mirror.verify.findings import EnoughFound, Findings
from mirror.verify.history import History
from mirror.verify.items import Item, changed_parts, digest_of, is_same
from mirror.verify.pairing import Common, Keys, Pair, find_common, pair_up, places_of
from mirror.verify.values import Bounds, Named, Rules, Verdict
from mirror.wire.encode import BatchBuilder
from mirror.wire.records import NO_END, Batch

_FIRST_WINDOW: Final = 64
_NOT_IN_STEP: Final = "no record of the source's next {} is among the target's next {}"


class Comparison:
    """The comparison of one partition; :meth:`run` does it, and may be called once."""

    def __init__(
        self,
        source: Iterable[Fetched],
        target: Iterable[Fetched],
        bounds: Bounds,
        rules: Rules,
        again: tuple[Iterable[Fetched], Iterable[Fetched]],
    ) -> None:
        """``source`` may extend beyond ``bounds.source_end``, and ``target`` beyond ``bounds.target_end``.

        ``again`` are both logs from their beginning, of which one is read that lacks deletions.
        """
        self._again: Final = again
        self._bounds: Final = bounds
        self._rules: Final = rules
        self._source: Final = SourceCursor(source, bounds, rules, NO_END)
        self._target: Final = TargetCursor(target, bounds, rules)
        self._verdict: Final = Verdict(
            source_start=bounds.source_start,
            target_start=bounds.target_start,
            source_end=bounds.source_start,
            target_end=bounds.target_start,
        )
        self._coverage: Final = Coverage(self._verdict, bounds)
        self._findings: Final = Findings(rules, self._verdict.named)
        self._history: Final = History(rules.max_batch_bytes)
        self._removed_from_source: Final = Removals()
        self._removed_from_target: Final = Removals()
        self._at_head = bounds.source_trimmed or bounds.target_trimmed
        self._ahead_at: int | None = None

    def run(self) -> Verdict:
        """Compare. Raises what the iterables raise, and FlowError if the flow's transform gives what is no record.

        :meth:`stopped` returns what was found until then.
        """
        try:
            while self._step():
                pass
            if self._verdict.complete and self._ahead_at is None:
                self._coverage.add_rest(self._source, self._target)
            self._explain_removals()
        except EnoughFound:
            return self.stopped(f"the comparison ended after {len(self._findings)} findings")
        except DamagedBatch as damage:
            return self._stopped_by(damage)
        if not self._findings.any and self._verdict.complete:
            self._verdict.source_end = max(self._bounds.source_start, self._bounds.source_end)
            self._verdict.target_end = self._bounds.target_end if self._ahead_at is None else self._ahead_at
        return self._concluded()

    def stopped(self, reason: str) -> Verdict:
        """Return what was found so far; the rest was not compared for ``reason``."""
        if unpermitted := self._findings.unpermitted:
            why = f"whether they are repetitions was not examined: {reason}"
            self._coverage.add("target", min(unpermitted), max(unpermitted) + 1, why)
        start = max(self._source.last + 1, self._bounds.source_start)
        if start < self._bounds.source_end:
            self._coverage.add("source", start, self._bounds.source_end, reason)
        return self._concluded()

    def _stopped_by(self, damage: DamagedBatch) -> Verdict:
        if damage.cursor is self._target:
            self._findings.add_damaged(self._source.last + 1, self._target.last + 1)
        side = "target's" if isinstance(damage.cursor, TargetCursor) else "source's"
        return self.stopped(f"a batch of the {side} log cannot be read: {damage}")

    # Invariant: What is copied is what the progress says, read before the end of the target's log: every record in
    #   front of it is compared, and the next comparison begins exactly there.
    # Test: tests/verify/test_damaged_logs.py::test_record_in_front_of_what_is_copied_next_is_found
    def _concluded(self) -> Verdict:
        verdict = self._verdict
        verdict.differences = self._findings.differences()
        verdict.bytes, verdict.digest, verdict.passed = self._source.bytes, self._source.digest, self._source.passed
        for cursor in (self._source, self._target):
            verdict.named.update(cursor.named)
        verdict.named = +verdict.named
        self._coverage.check()
        return verdict

    # --- what is equal

    def _step(self) -> bool:
        """Compare the next batches or records; return whether there may be more."""
        if not self._decodes:
            source = self._source.whole_batch()
            target = self._target.whole_batch() if source is not None else None
            if source is not None and target is not None and source.next_offset <= self._bounds.source_end:
                records = is_same(source, target)
                if records is not None:
                    self._on_same(source, target, records)
                    return True
        one, other = self._source.peek(), self._target.peek()
        if other is None and (one is None or one.offset >= self._bounds.source_end):
            return False
        if one is not None and other is not None and self._equal(one, other):
            return self._on_equal(one, other)
        return self._resolve()

    @property
    def _decodes(self) -> bool:
        """Whether every record has to be looked at."""
        return self._rules.rewrites or self._removed_from_source.waits or self._removed_from_target.waits

    def _on_same(self, source: Batch, target: Batch, records: bytearray) -> None:
        try:
            target.verify()
        except CorruptBatch as error:
            raise DamagedBatch(self._target, str(error)) from error
        self._history.add_batch(source, records)
        verdict = self._verdict
        verdict.batches += 1
        verdict.records += source.count
        if target.has_log_append_time:
            verdict.named[Named.APPEND_TIME] += source.count
        self._source.take_batch()
        self._target.take_batch()
        self._advance()

    def _equal(self, one: Item, other: Item) -> bool:
        a, b = one.record, other.record
        if a.key != b.key or a.value != b.value or tuple(a.headers) != tuple(b.headers):
            return False
        return not other.has_time or a.timestamp_ms == b.timestamp_ms or self._may_clamp(one, other)

    def _may_clamp(self, one: Item, other: Item) -> bool:
        times = self._rules.times
        return times is not None and times.may_clamp(one.record.timestamp_ms, other.record.timestamp_ms)

    def _on_equal(self, one: Item, other: Item) -> bool:
        if one.offset >= self._bounds.source_end:
            self._ahead_at = other.offset
            return False
        self._count_equal(one, other)
        if self._removed_from_source.waits or self._removed_from_target.waits:
            self._see(one, other)
        self._source.take()
        self._target.take()
        self._advance()
        return True

    def _count_equal(self, one: Item, other: Item) -> None:
        self._verdict.records += 1
        self._verdict.decoded += 1
        if not other.has_time:
            self._verdict.named[Named.APPEND_TIME] += 1
        elif one.record.timestamp_ms != other.record.timestamp_ms:
            self._verdict.named[Named.CLAMPED] += 1
        self._history.add(one.record, timed=other.has_time)

    def _advance(self) -> None:
        self._at_head = False
        if not len(self._findings):
            self._verdict.source_end, self._verdict.target_end = self._source.last + 1, self._target.last + 1

    # --- what differs

    def _resolve(self) -> bool:
        """Find the next common record, and what the records before it are; return whether there may be more."""
        size, keys = _FIRST_WINDOW, Keys()
        while True:
            source, target = self._source.window(size), self._target.window(size)
            widest = size >= self._rules.window
            at_end = self._is_last(source, target)
            common = self._find_common(source, target, keys, last=at_end or widest)
            if common is not None:
                following = Common(source[common.source].offset, target[common.target].offset)
                return self._classify(source[: common.source], target[: common.target], following)
            if at_end:
                return self._classify(source, target, None)
            if widest and self._at_head and (cursor := self._trimmed) is not None:
                # Records that the other side's log does not have any more: any number of them.
                self._pass_head(cursor, self._rules.window)
                size, keys = _FIRST_WINDOW, Keys()
            elif widest and self._rules.foreign_allowed and not any(item.by_flow for item in target):
                self._pass_foreign(target, source[0].offset)
                size, keys = _FIRST_WINDOW, Keys()
            elif widest:
                return self._give_up(source, target)
            else:
                size *= 4

    def _is_last(self, source: list[Item], target: list[Item]) -> bool:
        """Whether no common record follows: a side has no more, or the source only what need not be copied."""
        if self._target.read_all:
            return not target or self._source.read_all or source[-1].offset >= self._bounds.source_end
        return not source and self._source.read_all

    @property
    def _trimmed(self) -> Cursor | None:
        """The side of which the other side's log may not have the beginning any more."""
        if self._may_begin_anywhere:
            return None
        if self._bounds.source_trimmed:
            return self._target
        return self._source if self._bounds.target_trimmed else None

    @property
    def _may_begin_anywhere(self) -> bool:
        """Whether it is not known which side has more in front, so that neither can be passed to look for the other."""
        return self._at_head and self._bounds.source_trimmed and self._bounds.target_trimmed

    def _find_common(self, source: Sequence[Item], target: Sequence[Item], keys: Keys, *, last: bool) -> Common | None:
        """Find it by all of a record; without timestamps only where they may differ, and if there is no other way.

        The first two records differ, so that these are never common.
        """
        timed = all(item.has_time for item in target)
        common = find_common(source, target, keys, timed=timed, min_sum=1)
        times = self._rules.times
        if common is None and timed and last and times is not None and times.policy == "clamp":
            common = find_common(source, target, keys, timed=False, min_sum=1)
        return common

    def _pass_head(self, cursor: Cursor, count: int) -> None:
        """Pass records at the beginning of a log, where the other side's log has none any more."""
        items = [cursor.take() for _ in range(min(count, len(cursor.window(count))))]
        if not items:
            return
        self._coverage.add_head("source" if cursor is self._source else "target", items)

    def _pass_foreign(self, target: list[Item], place: int) -> None:
        """Pass as many permitted foreign records as the window has: a bulk load, or the other direction's backlog."""
        self._removed_from_source.begin(self._source.last, place, 0)
        for item in target:
            self._on_extra(item, place)
            self._target.take()

    def _classify(self, source: list[Item], target: list[Item], following: Common | None) -> bool:
        """Say what these records are, and pass them. Return whether there may be more.

        ``following`` has the offsets of what follows on each side; None: nothing does that has to be compared.
        """
        passed = False
        if self._at_head and self._bounds.source_trimmed and target:
            self._pass_head(self._target, len(target))
            target, passed = [], True
        if self._at_head and self._bounds.target_trimmed:
            count = sum(item.offset < self._bounds.source_end for item in source)
            self._pass_head(self._source, count)
            source, passed = source[count:], passed or count > 0
        pairs = self._pairs(source, target)
        end = following or Common(self._bounds.source_end, self._bounds.target_end)
        copied = sum(item.offset < end.source for item in source)
        self._removed_from_source.begin(self._source.last, end.source, copied)
        self._removed_from_target.begin(self._target.last, end.target, len(target))
        for pair, place in zip(pairs, places_of(pairs, end), strict=True):
            at_end = following is None and place.target == self._bounds.target_end
            if not self._on_pair(pair, place, withheld=at_end and self._bounds.withheld):
                return False
        return passed or bool(pairs) or following is not None

    def _pairs(self, source: list[Item], target: list[Item]) -> list[Pair]:
        """Pair what stands in each other's place.

        In compacted logs, a record that is not copied yet may only have the key of one that is superseded.
        """
        if not self._rules.compacted:
            return pair_up(source, target, by_key=False)
        copied = [item for item in source if item.offset < self._bounds.source_end]
        return pair_up(copied, target, by_key=True) + [Pair(item, None) for item in source[len(copied) :]]

    def _on_pair(self, pair: Pair, place: Common, *, withheld: bool) -> bool:
        """Say what one or two records are, and pass them; ``place`` has the offsets of what follows.

        Return False if the comparison is at its end. ``withheld``: the target may have the record, and not show it.
        """
        one, other = pair
        if one is not None and one.offset >= self._bounds.source_end:
            if other is not None:
                self._ahead_at = other.offset
                return False
            self._see(one, None)
            self._source.take()
        elif one is not None and other is not None:
            self._on_changed(one, other)
        elif one is not None:
            if withheld:
                self._withhold(one)
                return False
            self._source.take()
            self._on_missing(one, place.target)
        elif other is not None:
            self._on_extra(other, place.source)
            self._target.take()
        return True

    def _on_changed(self, one: Item, other: Item) -> None:
        parts = changed_parts(one, other)
        if parts and not (parts == ("timestamp",) and self._may_clamp(one, other)):
            self._findings.add_changed(one, other, parts)
        else:
            self._count_equal(one, other)
        self._see(one, other)
        self._source.take()
        self._target.take()

    def _see(self, one: Item | None, other: Item | None) -> None:
        """Remember which keys have a later record, of the source and of the target."""
        for item in (one, other):
            if item is not None:
                self._removed_from_source.seen(item.record.key)
        if other is not None:
            self._removed_from_target.seen(other.record.key)

    def _on_missing(self, item: Item, place: int) -> None:
        self._see(item, None)
        if self._rules.target_compacted and self._removed_from_target.explains(item, place):
            self._verdict.named[Named.TARGET_COMPACTED] += 1
        elif (named := self._left_out(item)) is not None:
            self._verdict.named[named] += 1
        else:
            self._findings.add_missing(item, place)

    def _left_out(self, item: Item) -> Named | None:
        """Return by which policy the flow leaves out this record; None if it does not."""
        rules, record = self._rules, item.record
        # Invariant: A record that the target lacks is explained by the aside topic only if that has it, unchanged.
        # Test: tests/verify/test_aside.py::test_record_that_is_not_aside_is_missing
        aside = rules.aside.records.get(item.offset)
        if aside is not None and (aside.digest, aside.timestamp_ms) == (digest_of(record), record.timestamp_ms):
            return Named.SETTLED if aside.settled else Named.ASIDE
        if rules.skips_keyless and record.key is None:
            return Named.NO_KEY
        if rules.times is not None and rules.times.may_leave_out(record.timestamp_ms):
            return Named.BAD_TIMESTAMP
        if rules.skips_above_bytes is None:
            return None
        size = BatchBuilder.upper_bound(record.key, record.value, record.headers)
        return Named.TOO_LARGE if size > rules.skips_above_bytes else None

    def _on_extra(self, item: Item, place: int) -> None:
        self._see(None, item)
        if self._rules.source_compacted and self._removed_from_source.explains(item, place):
            self._verdict.named[Named.SOURCE_COMPACTED] += 1
        else:
            self._findings.add_extra(item, place, self._history.find(item))

    def _withhold(self, item: Item) -> None:
        reason = f"an open transaction on the target withholds its records from offset {self._bounds.target_end} on"
        self._coverage.add("source", item.offset, self._bounds.source_end, reason)

    def _give_up(self, source: list[Item], target: list[Item]) -> bool:
        """Neither side has a record in common with the other, as far as the windows reach."""
        first = pair_up(source[:_FIRST_WINDOW], target[:_FIRST_WINDOW], by_key=self._rules.compacted)
        if any(pair.source is not None and pair.target is not None for pair in first):
            return self._classify(source, target, Common(source[-1].offset + 1, target[-1].offset + 1))
        if not self._may_begin_anywhere:
            self._findings.add_missing(source[0], target[0].offset)
        reason = _NOT_IN_STEP.format(len(source), len(target))
        self._coverage.add("source", source[0].offset, self._bounds.source_end, reason)
        return False

    # --- at the end

    def _explain_removals(self) -> None:
        """Look at the rest of the source for records that supersede what compaction has removed from it."""
        while self._removed_from_source.waits and (item := self._source.peek()) is not None:
            self._removed_from_source.seen(item.record.key)
            self._source.take()
        self._add_forgotten("target", self._removed_from_source, self._bounds.target_start, self._bounds.target_end)
        self._add_forgotten("source", self._removed_from_target, self._bounds.source_start, self._bounds.source_end)
        verdict, unexplained = self._verdict, []
        for item, place in self._removed_from_source.unexplained(self._source_again()):
            verdict.named[Named.SOURCE_COMPACTED] -= 1
            unexplained.append((place, item.offset))
            self._findings.add_extra(item, place, None)
        for item, place in self._removed_from_target.unexplained(self._target_again()):
            verdict.named[Named.TARGET_COMPACTED] -= 1
            unexplained.append((item.offset, place))
            self._findings.add_missing(item, place)
        self._lower_ends([*unexplained, *self._findings.settle_rest()])

    def _lower_ends(self, differences: Iterable[tuple[int, int]]) -> None:
        """Let both sides be equal only up to these source and target offsets, of what differs."""
        for source_end, target_end in differences:
            self._verdict.source_end = min(self._verdict.source_end, source_end)
            self._verdict.target_end = min(self._verdict.target_end, target_end)

    def _source_again(self) -> Iterator[Item]:
        """Read the source from its beginning to the end of what is copied, if that is needed."""
        if self._removed_from_source.lacks_deletions or self._findings.unsettled:
            whole, end = replace(self._bounds, source_start=0), self._bounds.source_end
            for item in SourceCursor(self._again[0], whole, self._rules, end).rest():
                self._lower_ends(self._findings.settle(item))
                yield item

    def _target_again(self) -> Iterator[Item]:
        if self._removed_from_target.lacks_deletions:
            yield from TargetCursor(self._again[1], replace(self._bounds, target_start=0), self._rules).rest()

    def _add_forgotten(self, side: str, removals: Removals, start: int, end: int) -> None:
        """Add the offsets of records of ``side`` that the other log lacks, if some were forgotten unexplained."""
        if removals.forgotten:
            reason = (
                f"too many keys are to be found again: {removals.forgotten:,} removed records may not be superseded"
            )
            self._coverage.add(side, start, end, reason)
