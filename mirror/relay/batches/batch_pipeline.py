"""Turns the fetches of a source partition into the batches for the target, in order. No I/O.

::

    Fetched ──add_fetched──► inputs ──► backlog ──peek──► OutputBatch                     (passed on as bytes)
                                           └──reencode──► ReencodeResult ──► OutputBatch  (in a thread of its own)

The backlog is only as long as it has to be: as objects, a batch of 100 bytes takes a dozen times its size.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from mirror.consumer.fetched import Fetched, without_aborted
from mirror.errors import CorruptBatch, MirrorError
from mirror.relay.batches.aside import AsideOrigin, AsideSpec, damaged_batch, has_plausible_end
from mirror.relay.batches.held_buffers import HeldBuffers
from mirror.relay.batches.output_batch import BufferRef, OutputBatch
from mirror.relay.batches.reencode import ReencodeReason, ReencodeResult, ReencodeSpec, TimestampRule
from mirror.relay.batches.reencode_decision import (
    IsForeign,
    deep_reason,
    has_bad_timestamp,
    is_small,
    skip_reason,
)
from mirror.relay.batches.remedies import Remedies
from mirror.relay.batches.source_batch import SourceBatch, merges_with
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.model.client_defaults import RECOMPRESSED_BATCH_BYTES
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.progress.gaps import GapKind
from mirror.wire.decode import records_of
from mirror.wire.legacy import MessageSet
from mirror.wire.records import AnyBatch, Batch

_MAX_BATCHES_SKIPPED: Final = 1_000
_MAX_BATCHES_MERGED: Final = 64
"""At most this many batches are merged, however small they are: as objects they take 0.8 KB each, of the 50 KB that a
partition may take (:func:`mirror.relay.task.copy_ranges.copy_ranges`)."""

SubmitReencode = Callable[[Sequence[AnyBatch], ReencodeSpec], Future[ReencodeResult]]


@dataclass(slots=True)
class _FetchedInput:
    """The unread rest of one fetch; offsets from ``end`` on are ignored."""

    batches: Iterator[tuple[AnyBatch, bool]]
    """Each batch, and whether it was aborted."""
    buffer: BufferRef
    end: int


class BatchPipeline:
    """The outputs of one copy, in order, from the offset at which it starts."""

    def __init__(
        self,
        limits: TargetLimits,
        policy: CopyPolicy,
        batch_size: int,
        *,
        reencode: SubmitReencode,
        held: HeldBuffers,
        is_foreign: IsForeign | None = None,
        origin: AsideOrigin | None = None,
    ) -> None:
        """``reencode`` runs in another thread; ``held`` counts the bytes that are held.

        ``origin`` is named by what goes aside; None: nothing does.
        """
        self._origin: Final = origin
        self._is_foreign: Final = is_foreign
        self._held: Final = held
        self.limits = limits
        """See :meth:`set_limits`."""
        self._policy = policy
        self._batch_size = batch_size if policy.compression is None else min(batch_size, RECOMPRESSED_BATCH_BYTES)
        self._reencode = reencode
        self.remedies: Final = Remedies(limits.max_message_bytes)
        self._stop: tuple[int, MirrorError] | None = None
        self._overlap_at = -1
        self.restart(0)

    def restart(self, start: int) -> None:
        """Restart at offset ``start`` and forget everything that was added. The caller releases its buffers."""
        self._start = self._expected = start
        self.remedies.forget_skipped(start)
        self._inputs: deque[_FetchedInput] = deque()
        # Empty only if the inputs are empty, too.
        self._backlog: deque[SourceBatch] = deque()
        self._outputs: deque[OutputBatch] = deque()
        self.encoding: Future[ReencodeResult] | None = None
        """The re-encoding in progress; no output is available before it is done."""
        self._run: list[SourceBatch] = []

    # --- input

    def add_fetched(self, fetched: Fetched, end: int) -> None:
        """Add the batches of ``fetched`` below offset ``end``; their bytes are not copied."""
        buffer = BufferRef(fetched.held, self._held.release, fetched, references=1)
        self._held.add(buffer)
        self._inputs.append(_FetchedInput(without_aborted(fetched.batches, fetched.aborted), buffer, end))
        self._fill_backlog(1)

    def _fill_backlog(self, count: int) -> bool:
        """Read until the backlog has ``count`` batches; return False if there are not as many."""
        while len(self._backlog) < count and self._inputs:
            fetched = self._inputs[0]
            pending = self._next_pending(fetched)
            if pending is not None:
                self._backlog.append(pending)
                fetched.buffer.references += 1
            else:
                self._inputs.popleft().buffer.release()
        return len(self._backlog) >= count

    def _next_pending(self, fetched: _FetchedInput) -> SourceBatch | None:
        # None of them ends at or before the fetch's offset, or before the one ahead of it: see `wire.records.Batches`.
        batch, aborted = next(fetched.batches, (None, False))
        if batch is None:
            return None
        # A compressed message set shows only its last offset.
        expected = self._expected
        begins = expected if isinstance(batch, MessageSet) else batch.base_offset
        if begins >= fetched.end:
            return None
        remedies = self.remedies.at(begins)
        error = self._check_overlap(batch) if begins < self._expected else None
        skip = skip_reason(batch, aborted=aborted, is_foreign=self._is_foreign)
        pending = SourceBatch(batch, fetched.buffer, self._gaps_before(batch), fetched.end, skip)
        pending.error, pending.alone = error, error is not None
        if pending.skip is None:
            pending.damaged = self.remedies.are_damaged(expected, batch.next_offset)
            pending.alone = pending.alone or pending.damaged
            pending.remedies = remedies
            pending.reason = self._reason(pending)
        return pending

    def _check_overlap(self, batch: AnyBatch) -> CorruptBatch | None:
        # The first batch of the copy may begin before the copy's start, but not before the end of an earlier batch.
        if self._expected == self._start and self._expected != self._overlap_at:
            return None
        self._overlap_at = self._expected
        last = self._expected - 1
        return CorruptBatch(f"the batch at offset {batch.base_offset} is corrupt: it follows offset {last}")

    def _gaps_before(self, batch: AnyBatch) -> Mapping[str, int]:
        """Count the missing offsets before and in ``batch``, and move on to its end."""
        gaps: dict[str, int] = {}  # to create a Counter costs more, and mostly nothing is missing
        if not isinstance(batch, MessageSet):  # a message set does not show its missing offsets
            missing = max(0, batch.base_offset - self._expected)
            if batch.is_control:
                gaps[GapKind.MARKERS] = batch.next_offset - max(batch.base_offset, self._expected)
            elif batch.base_offset >= self._start:
                missing += batch.last_offset_delta + 1 - batch.count
            if missing:
                gaps[GapKind.COMPACTED] = missing
        self._expected = batch.next_offset
        return gaps

    def _reason(self, pending: SourceBatch) -> ReencodeReason | None:
        batch = pending.batch
        if pending.remedies:
            return self.remedies.first_of(pending.remedies)
        reason = deep_reason(
            batch,
            start=self._start,
            end=pending.end,
            target_log_append_time=self.limits.log_append_time,
            rewrites=self._policy.rewrites,
        )
        # The broker would refuse it, and with it the whole transaction.
        return ReencodeReason.TOO_LARGE if reason is None and batch.size > self.remedies.max_passed_bytes else reason

    @property
    def empty(self) -> bool:
        """Whether no output is left, and none is being encoded."""
        return not (self._backlog or self._outputs or self.encoding)

    # --- output

    def peek(self, unix_ms: int) -> OutputBatch | None:
        """Return the next output, which :meth:`pop` removes; None if there is none (yet).

        Raises the errors of the re-encoding, CorruptBatch, and the error given to :meth:`stop_at`; then the caller has
        to :meth:`clear` the pipeline.
        """
        while not self._outputs:
            if self.encoding is None and not self._backlog:
                return None
            if self.encoding is None:
                self._process_next(unix_ms)
            elif self.encoding.done():
                self._add_reencoded(self.encoding)
            else:
                return None
        output = self._outputs[0]
        if self._stop is not None and output.batch is not None and output.base_offset >= self._stop[0]:
            raise self._stop[1]
        return output

    # Invariant: A partition stops just in front of a damaged batch: what precedes it is copied and committed, and
    #   neither records nor progress pass it.
    # Test: tests/relay/partition/test_source_failures.py::test_neither_records_nor_progress_pass_a_corrupt_batch
    def stop_at(self, output: OutputBatch, error: MirrorError) -> None:
        """Raise ``error`` at ``output``, which the target does not take, once everything before it is copied."""
        self._stop = (output.base_offset, error)

    def set_limits(self, limits: TargetLimits) -> None:
        """Have what is encoded from now on fit ``limits``."""
        if limits.max_message_bytes != self.limits.max_message_bytes:
            self.remedies.set_max_bytes(limits.max_message_bytes)
        self.limits = limits

    def forget_refusals(self) -> None:
        """Offer again what the target has refused: it may take it by now."""
        self._stop = None
        self.remedies.forget(self.limits.max_message_bytes)

    def clear(self) -> None:
        """Drop everything that is left, and cancel the re-encoding."""
        for buffer in (item.buffer for items in (self._run, self._backlog, self._inputs) for item in items):
            buffer.release()
        for output in self._outputs:
            if output.buffer is not None:
                output.buffer.release()
        if self.encoding is not None:
            self.encoding.cancel()
        self._run, self.encoding = [], None
        self._backlog.clear()
        self._inputs.clear()
        self._outputs.clear()

    def _process_next(self, unix_ms: int) -> None:
        """Pass on or skip the first batch of the backlog, or re-encode it together with the batches merged with it."""
        pending = self._backlog[0]
        if pending.error is not None:
            raise pending.error
        if pending.damaged and not is_decodable(pending.batch):
            self._put_aside(pending, unix_ms)
            return
        if pending.skip is None and (run := self._take_run(unix_ms)):
            self._run = run
            self.encoding = self._reencode([one.batch for one in run if one.skip is None], self._spec(run, unix_ms))
            return
        self._drop_from_backlog(1)
        batch = pending.batch
        output = OutputBatch(batch.base_offset, batch.next_offset, batch.leader_epoch, buffer=pending.buffer)
        if pending.gaps:
            output.gaps.update(pending.gaps)
        if pending.skip is not None:
            output.dropped[pending.skip] = pending.skipped_count
            self._skip_following(output)
        else:
            assert isinstance(batch, Batch)  # noqa: S101 - message sets are re-encoded
            batch.verify()
            output.batch, output.count, output.received_ms = batch, batch.count, _received_ms(pending)
            output.append_time_ms = batch.max_timestamp if batch.has_log_append_time else None
        self._outputs.append(output)

    # Invariant: A damaged batch goes aside only if its end is certain: otherwise, records behind it would be passed.
    # Test: tests/relay/batches/test_aside.py::test_damaged_batch_whose_end_is_uncertain_stays_in_front
    def _put_aside(self, pending: SourceBatch, unix_ms: int) -> None:
        """Add an output with the bytes of a damaged batch. Raises CorruptBatch if the batch's end is uncertain."""
        batch = pending.batch
        following = self._backlog[1].batch if self._fill_backlog(2) else None
        follows = following.base_offset if isinstance(following, Batch) else None
        if self._origin is None or not isinstance(batch, Batch) or not has_plausible_end(batch, follows):
            raise CorruptBatch(
                f"the batch at offset {batch.base_offset} is corrupt, and does not go aside: the offsets in its"
                " header are uncertain"
            )
        self._drop_from_backlog(1)
        start = max(batch.base_offset, self._start)
        aside = damaged_batch(batch, self._origin, start, unix_ms)
        buffer = BufferRef(aside.size, self._held.release, references=1)
        self._held.add(buffer)
        output = OutputBatch(start, min(batch.next_offset, pending.end), batch.leader_epoch, aside, buffer)
        output.count, output.aside = 1, {ReencodeReason.CORRUPT: 1}
        output.tried = frozenset({ReencodeReason.CORRUPT})
        output.received_ms = _received_ms(pending)
        output.gaps.update(pending.gaps)
        self._outputs.append(output)
        pending.buffer.release()

    def _skip_following(self, output: OutputBatch) -> None:
        """Add the following batches of the same fetch that hold nothing to copy: there may be thousands of markers."""
        for _ in range(_MAX_BATCHES_SKIPPED):
            pending = self._backlog[0] if self._backlog else None
            if pending is None or pending.error or pending.skip is None or pending.buffer is not output.buffer:
                return
            self._drop_from_backlog(1)
            output.next_offset, output.leader_epoch = pending.batch.next_offset, pending.batch.leader_epoch
            output.dropped[pending.skip] = output.dropped.get(pending.skip, 0) + pending.skipped_count
            if pending.gaps:
                output.gaps.update(pending.gaps)
            pending.buffer.release()

    def _drop_from_backlog(self, count: int) -> None:
        for _ in range(count):
            self._backlog.popleft()
        if not self._backlog:
            self._fill_backlog(1)

    def pop(self) -> OutputBatch:
        """Remove and return the output that :meth:`peek` returned."""
        return self._outputs.popleft()

    def _take_run(self, unix_ms: int) -> list[SourceBatch]:
        """Remove the batches to re-encode together from the backlog; empty if the first one is passed on as bytes."""
        first = self._backlog[0]
        allowed = self.limits.earliest_ms(unix_ms), self.limits.latest_ms(unix_ms)
        if has_bad_timestamp(first.batch, allowed):
            first.reason = first.reason or ReencodeReason.BAD_TIMESTAMP
            first.remedies |= {ReencodeReason.BAD_TIMESTAMP}
        if first.reason is None and not is_small(first.batch):
            return []
        run, size = [first], first.batch.size
        while len(run) < _MAX_BATCHES_MERGED and self._fill_backlog(len(run) + 1):
            pending = self._backlog[len(run)]
            size += pending.batch.size
            if size > self._batch_size or first.alone or pending.alone:
                break
            if pending.skip is None and not merges_with(first, pending, allowed):
                break
            run.append(pending)
        while run[-1].skip is not None:
            run.pop()  # no batch behind it is merged
        if first.reason is None and len(run) == 1:
            return []
        self._drop_from_backlog(len(run))
        return run

    def _spec(self, run: list[SourceBatch], unix_ms: int) -> ReencodeSpec:
        remedies = run[0].remedies
        rule = None
        if ReencodeReason.BAD_TIMESTAMP in remedies:
            policy = self._policy.on_bad_timestamp
            bounds = self.limits.bounds_ms(unix_ms, exact=policy == "fail")
            rule = TimestampRule(*bounds, policy, self.limits.time_keys)
        keyless = self._policy.on_no_key if ReencodeReason.NO_KEY in remedies else "keep"
        return ReencodeSpec(
            codec=self._policy.compression,
            limit=self.remedies.max_reencoded_bytes,
            start=self._start,
            end=run[-1].end,
            headers=self._policy.headers,
            timestamps=rule,
            keyless="keep" if keyless == "fail" else keyless,
            aside=self._aside_spec(run, rule, keyless, unix_ms),
        )

    def _aside_spec(
        self, run: list[SourceBatch], rule: TimestampRule | None, keyless: str, unix_ms: int
    ) -> AsideSpec | None:
        """Return how records of ``run`` go aside; None if none may."""
        too_large = frozenset[int]()
        if self._policy.on_too_large == "aside" and self.remedies.skipped_offsets:
            end = run[-1].batch.next_offset
            too_large = frozenset(offset for offset in self.remedies.skipped_offsets if offset < end)
        refused = keyless == "aside" or (rule is not None and rule.policy == "aside")
        if self._origin is None or not (too_large or refused):
            return None
        return AsideSpec(self._origin, unix_ms, too_large)

    def _add_reencoded(self, encoding: Future[ReencodeResult]) -> None:
        """Turn the result of a re-encoding into outputs; the last one counts what has become of the source batches."""
        self.encoding, run = None, self._run
        try:
            result = encoding.result()
        except MirrorError:
            if len(run) == 1:
                raise
            # One of the batches cannot be re-encoded: the batches before it can still be copied.
            self._retry_separately(run)
            return
        self._run = []
        reason = run[0].reason or ReencodeReason.SMALL
        size = sum(encoded.batch.size for encoded in result.batches)
        buffer = BufferRef(size, self._held.release, references=1)
        self._held.add(buffer)
        tried = run[0].remedies | {reason}
        for encoded in result.batches:
            output = OutputBatch(
                encoded.base_offset,
                encoded.next_offset,
                encoded.leader_epoch,
                buffer=buffer,
                reason=reason,
                tried=tried,
            )
            buffer.references += 1
            if encoded.base_offset in self.remedies.skipped_offsets and not encoded.aside:
                output.dropped[ReencodeReason.TOO_LARGE] = 1
            else:
                output.batch, output.count = encoded.batch, encoded.batch.count
                output.jumps, output.received_ms = encoded.jumps, _received_ms(run[0])
                output.aside = encoded.aside
            self._outputs.append(output)
        last = run[-1].batch
        next_offset = min(last.next_offset, run[-1].end)
        tail = OutputBatch(last.base_offset, next_offset, last.leader_epoch, buffer=buffer)
        reasons = (pending.reason or ReencodeReason.SMALL for pending in run if pending.skip is None)
        tail.reencoded = dict(Counter(reasons))
        skipped = Counter[str]()
        for pending in run:
            if pending.skip is not None:
                skipped[pending.skip] += pending.skipped_count
        tail.dropped = dict(Counter(result.dropped) + skipped)
        for pending in run:
            if pending.gaps:
                tail.gaps.update(pending.gaps)
        self._outputs.append(tail)
        for pending in run:
            pending.buffer.release()

    def _retry_separately(self, run: list[SourceBatch]) -> None:
        """Return the batches of ``run`` to the backlog, to be re-encoded one by one."""
        self._run = []
        for pending in run:
            pending.alone = True
        self._backlog.extendleft(reversed(run))


def is_decodable(batch: AnyBatch) -> bool:
    """Whether all records of ``batch`` can be decoded, which reads all of it."""
    try:
        if isinstance(batch, Batch):
            batch.verify()
        for _ in records_of(batch):
            pass
    except CorruptBatch:
        return False
    return True


def _received_ms(pending: SourceBatch) -> int:
    fetched = pending.buffer.fetched
    return 0 if fetched is None else fetched.received_ms
