"""From what a source gave to what a target takes: batches judged, trimmed, put together or cut, in order. No I/O.

::

    Fetched ──take_in──► supply ──► backlog ──next──► Piece          (passed on as bytes)
                                       └──remake──► Made ──► Piece   (decoded and encoded in a thread of its own)

The backlog is only as long as needs to be seen: a batch of 100 bytes takes a dozen times that as objects.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from mirror.consumer.fetched import Fetched, without_aborted
from mirror.errors import CorruptBatch, MirrorError
from mirror.relay.batches.classify import SkipReason, codec_of, deep_reason, is_small, skip_reason
from mirror.relay.batches.output_batch import BufferRef, OutputBatch
from mirror.relay.batches.reencode import Reason, ReencodeResult, ReencodeSpec, TimestampRule
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.model.client_defaults import RECOMPRESSED_BATCH_BYTES
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.progress.gaps import GapKind
from mirror.wire.legacy import MessageSet
from mirror.wire.records import AnyBatch, Batch

_AT_A_TIME: Final = 1_000
_TOGETHER: Final = 64
"""So many batches are put together at most, however small they are: as objects they take 0.8 KB each, of the 50 KB that
a partition may take (:func:`mirror.relay.task.copy_ranges.copy_ranges`)."""

SubmitReencode = Callable[[Sequence[AnyBatch], ReencodeSpec], Future[ReencodeResult]]


@dataclass(slots=True)
class _FetchedInput:
    """What is left of one fetch: each batch, and whether it was aborted; what lies before ``end`` is wanted."""

    batches: Iterator[tuple[AnyBatch, bool]]
    part: BufferRef
    end: int


@dataclass(slots=True)
class _QueuedBatch:
    batch: AnyBatch
    part: BufferRef
    gaps: Counter[str]
    end: int
    skip: SkipReason | None = None
    reason: Reason | None = None
    remedies: frozenset[Reason] = frozenset()
    alone: bool = False
    wrong: CorruptBatch | None = None


class BatchPipeline:
    """The pieces of one copy, from where it begins, in order.

    ``making`` is what is being encoded just now: nothing is handed on before it.
    """

    def __init__(
        self,
        limits: TargetLimits,
        policy: CopyPolicy,
        batch_size: int,
        *,
        reencode: SubmitReencode,
        on_held: Callable[[BufferRef], None],
        on_released: Callable[[BufferRef], None],
    ) -> None:
        """``reencode`` runs in another thread; ``on_held`` and ``on_released`` count the bytes that are held."""
        self._on_held = on_held
        self._on_released = on_released
        self._limits = limits
        self._policy = policy
        self._rewrites = policy.rewrites
        self._batch_size = batch_size if policy.compression is None else min(batch_size, RECOMPRESSED_BATCH_BYTES)
        self._reencode = reencode
        self._limit = self._largest = limits.max_message_bytes
        # What the target taught: batches that begin below the offset are made anew for the reason.
        self._remedies: dict[Reason, int] = {}
        self._reach: dict[Reason, int] = {}
        self._unacceptable: set[int] = set()
        self._stop: tuple[int, MirrorError] | None = None
        self._broken_at = -1
        self.restart(0)

    def restart(self, start: int) -> None:
        """From ``start`` on; what was there is forgotten. The caller lets go of its parts."""
        self._start = self._expected = start
        self._supplies: deque[_FetchedInput] = deque()
        # Empty only where the supplies are, too.
        self._backlog: deque[_QueuedBatch] = deque()
        self._made: deque[OutputBatch] = deque()
        self.encoding: Future[ReencodeResult] | None = None
        self._run: list[_QueuedBatch] = []

    # --- what comes in

    def add_fetched(self, fetched: Fetched, end: int) -> None:
        """What of ``fetched`` lies before ``end``; bytes stay where they are."""
        part = BufferRef(fetched.held, self._on_released, fetched, references=1)
        self._on_held(part)
        self._supplies.append(_FetchedInput(without_aborted(fetched.batches, fetched.aborted), part, end))
        self._see(1)

    def _see(self, count: int) -> bool:
        """Have ``count`` batches in the backlog; False where there are not as many."""
        while len(self._backlog) < count and self._supplies:
            supply = self._supplies[0]
            entry = self._entry(supply)
            if entry is not None:
                self._backlog.append(entry)
                supply.part.references += 1
            else:
                self._supplies.popleft().part.release()
        return len(self._backlog) >= count

    def _entry(self, supply: _FetchedInput) -> _QueuedBatch | None:
        for batch, aborted in supply.batches:
            # Of a compressed message set only the last offset is to be seen from outside.
            begins = self._expected if isinstance(batch, MessageSet) else batch.base_offset
            if begins >= supply.end:
                return None
            if batch.next_offset <= self._expected:
                continue
            remedies = self._remedies_of(begins) if self._remedies else frozenset()
            wrong = self._goes_back(batch) if begins < self._expected else None
            entry = _QueuedBatch(
                batch, supply.part, self._holes(batch), supply.end, skip_reason(batch, aborted=aborted)
            )
            entry.wrong, entry.alone = wrong, wrong is not None
            if entry.skip is None:
                entry.remedies = remedies
                entry.reason = self._reason(entry)
            return entry
        return None

    def _goes_back(self, batch: AnyBatch) -> CorruptBatch | None:
        # Where the copy begins its first batch may begin before it; but not where one was seen to end.
        if self._expected == self._start and self._expected != self._broken_at:
            return None
        self._broken_at = self._expected
        last = self._expected - 1
        return CorruptBatch(f"the batch at offset {batch.base_offset} is corrupt: it follows offset {last}")

    def _holes(self, batch: AnyBatch) -> Counter[str]:
        found: Counter[str] = Counter()
        if not isinstance(batch, MessageSet):  # theirs are not to be seen from outside
            missing = max(0, batch.base_offset - self._expected)
            if batch.is_control:
                found[GapKind.MARKERS] = batch.next_offset - max(batch.base_offset, self._expected)
            elif batch.base_offset >= self._start:
                missing += batch.last_offset_delta + 1 - batch.count
            if missing:
                found[GapKind.COMPACTED] = missing
        self._expected = batch.next_offset
        return found

    def _remedies_of(self, begins: int) -> frozenset[Reason]:
        return frozenset(reason for reason, until in self._remedies.items() if begins < until)

    def _reason(self, entry: _QueuedBatch) -> Reason | None:
        batch = entry.batch
        if entry.remedies:
            return next(reason for reason in self._remedies if reason in entry.remedies)
        reason = deep_reason(
            batch,
            start=self._start,
            end=entry.end,
            target_log_append_time=self._limits.log_append_time,
            rewrites=self._rewrites,
        )
        # The broker would refuse it, and with it the whole transaction.
        return Reason.TOO_LARGE if reason is None and batch.size > self._largest else reason

    @property
    def empty(self) -> bool:
        """Whether nothing is left to be handed on."""
        return not (self._backlog or self._made or self.encoding)

    # --- what goes out

    def peek(self, wall_ms: int) -> OutputBatch | None:
        """The next piece; None where there is none (yet).

        Raises what the encoding raised, CorruptBatch, and what :meth:`stop_at` was given; then call :meth:`clear`.
        """
        while not self._made:
            if self.encoding is None and not self._backlog:
                return None
            if self.encoding is None:
                self._take_up(wall_ms)
            elif self.encoding.done():
                self._take_made(self.encoding)
            else:
                return None
        if self._stop is not None and self._made[0].batch is not None and self._made[0].base_offset >= self._stop[0]:
            raise self._stop[1]
        return self._made[0]

    def clear(self) -> None:
        """Nothing of what is left is to be handed on; what is being encoded is no longer wanted."""
        for part in (one.part for some in (self._run, self._backlog, self._supplies) for one in some):
            part.release()
        for piece in self._made:
            if piece.buffer is not None:
                piece.buffer.release()
        if self.encoding is not None:
            self.encoding.cancel()
        self._run, self.encoding = [], None
        self._backlog.clear()
        self._supplies.clear()
        self._made.clear()

    def _take_up(self, wall_ms: int) -> None:
        """The first of the backlog, and those that are made anew with it."""
        entry = self._backlog[0]
        if entry.wrong is not None:
            raise entry.wrong
        if entry.skip is None and (run := self._gather(wall_ms)):
            self._run = run
            self.encoding = self._reencode(_sources(run), self._recipe(run, wall_ms))
            return
        self._take_off(1)
        batch = entry.batch
        piece = OutputBatch(
            batch.base_offset, batch.next_offset, batch.leader_epoch, buffer=entry.part, gaps=entry.gaps
        )
        if entry.skip is not None:
            piece.dropped[entry.skip] = 1
            self._pass_over(piece)
        else:
            assert isinstance(batch, Batch)  # noqa: S101 - others go deep
            batch.verify()
            piece.batch, piece.count = batch, batch.count
        self._made.append(piece)

    def _pass_over(self, piece: OutputBatch) -> None:
        """More with nothing to copy, of the same fetch: nobody has to wait for each of thousands of markers."""
        for _ in range(_AT_A_TIME):
            entry = self._backlog[0] if self._backlog else None
            if entry is None or entry.wrong or entry.skip is None or entry.part is not piece.buffer:
                return
            self._take_off(1)
            piece.next_offset, piece.leader_epoch = entry.batch.next_offset, entry.batch.leader_epoch
            piece.dropped[entry.skip] = piece.dropped.get(entry.skip, 0) + 1
            piece.gaps.update(entry.gaps)
            entry.part.release()

    def _take_off(self, count: int) -> None:
        for _ in range(count):
            self._backlog.popleft()
        if not self._backlog:
            self._see(1)

    def pop(self) -> OutputBatch:
        """The piece that :meth:`peek` showed was handed on."""
        return self._made.popleft()

    def _gather(self, wall_ms: int) -> list[_QueuedBatch]:
        """The batches to be encoded together, off the backlog; none where the first one is passed on as it is."""
        first = self._backlog[0]
        if self._bad_time(first.batch, wall_ms):
            first.reason = first.reason or Reason.BAD_TIMESTAMP
            first.remedies |= {Reason.BAD_TIMESTAMP}
        if first.reason is None and not is_small(first.batch):
            return []
        run, size = [first], first.batch.size
        while len(run) < _TOGETHER and self._see(len(run) + 1):
            entry = self._backlog[len(run)]
            size += entry.batch.size
            if size > self._batch_size or first.alone or entry.alone:
                break
            if entry.skip is None and not self._goes_with(first, entry, wall_ms):
                break
            run.append(entry)
        while run[-1].skip is not None:
            run.pop()  # nothing behind it is put together with it
        if first.reason is None and len(run) == 1:
            return []
        self._take_off(len(run))
        return run

    def _goes_with(self, first: _QueuedBatch, entry: _QueuedBatch, wall_ms: int) -> bool:
        """Whether ``entry`` can be encoded together with ``first``, and gains by it."""
        if entry.remedies or first.remedies or Reason.TOO_LARGE in {entry.reason, first.reason}:
            return False
        if codec_of(entry.batch) != codec_of(first.batch) or self._bad_time(entry.batch, wall_ms):
            return False
        return entry.reason is not None if first.reason is not None else entry.reason is None and is_small(entry.batch)

    def _bad_time(self, batch: AnyBatch, wall_ms: int) -> bool:
        """As far as a batch's header tells; a record in its middle may still be too old."""
        if isinstance(batch, MessageSet):
            return False
        too_old = 0 <= batch.base_timestamp < self._limits.earliest_ms(wall_ms)
        return bool(too_old or batch.max_timestamp > self._limits.latest_ms(wall_ms))

    def _recipe(self, run: list[_QueuedBatch], wall_ms: int) -> ReencodeSpec:
        remedies = run[0].remedies
        rule = None
        if Reason.BAD_TIMESTAMP in remedies:
            policy = self._policy.on_bad_timestamp
            bounds = self._limits.bounds_ms(wall_ms, exact=policy == "fail")
            rule = TimestampRule(*bounds, policy, self._limits.time_keys)
        return ReencodeSpec(
            codec=self._policy.compression,
            limit=self._limit,
            start=self._start,
            end=run[-1].end,
            headers=self._policy.headers,
            timestamps=rule,
            keyless="skip" if Reason.NO_KEY in remedies and self._policy.on_no_key == "skip" else "keep",
        )

    def _take_made(self, making: Future[ReencodeResult]) -> None:
        self.encoding, run = None, self._run
        try:
            made = making.result()
        except MirrorError:
            if len(run) == 1:
                raise
            # One of them cannot be made anew: those before it can be copied all the same.
            self._again(run)
            return
        self._run = []
        reason = run[0].reason or Reason.SMALL
        size = sum(one.batch.size for one in made.batches)
        part = BufferRef(size, self._on_released, references=1)
        self._on_held(part)
        tried = run[0].remedies | {reason}
        for one in made.batches:
            piece = OutputBatch(
                one.base_offset, one.next_offset, one.leader_epoch, buffer=part, reason=reason, tried=tried
            )
            part.references += 1
            if one.base_offset in self._unacceptable:
                piece.dropped[Reason.TOO_LARGE] = 1
            else:
                piece.batch, piece.count = one.batch, one.batch.count
            self._made.append(piece)
        last = run[-1].batch
        next_offset = min(last.next_offset, run[-1].end)
        tail = OutputBatch(last.base_offset, next_offset, last.leader_epoch, buffer=part, dropped=dict(made.dropped))
        tail.reencoded = dict(Counter(entry.reason or Reason.SMALL for entry in run if entry.skip is None))
        dropped = Counter(tail.dropped) + Counter(str(entry.skip) for entry in run if entry.skip is not None)
        tail.dropped = dict(dropped)
        for entry in run:
            tail.gaps.update(entry.gaps)
        self._made.append(tail)
        for entry in run:
            entry.part.release()

    def _again(self, run: list[_QueuedBatch]) -> None:
        """Those of ``run``, each for itself."""
        self._run = []
        for entry in run:
            entry.alone = True
        self._backlog.extendleft(reversed(run))

    # --- what the target taught

    def apply_remedy(self, piece: OutputBatch, reason: Reason) -> bool:
        """From now on make what is in ``piece`` anew for ``reason``; False where that was done, and did not help."""
        if reason in piece.tried and (reason is not Reason.TOO_LARGE or piece.count <= 1):
            return False
        if reason is Reason.TOO_LARGE and piece.reason is not None and piece.batch is not None:
            # Made by us, and still too large: the broker recompresses, or its limit is another one.
            self._limit = max(1, min(self._limit, piece.batch.size) // 2)
        elif reason is Reason.TOO_LARGE and piece.batch is not None:
            self._largest = min(self._largest, piece.batch.size - 1)
        # Each time twice as far: one such batch seldom comes alone, and each refusal costs a transaction.
        span = piece.next_offset - piece.base_offset
        self._reach[reason] = 2 * self._reach[reason] + span if reason in self._reach else 0
        until = piece.next_offset + self._reach[reason]
        self._remedies[reason] = max(until, self._remedies.get(reason, 0))
        return True

    def stop_at(self, piece: OutputBatch, error: MirrorError) -> None:
        """The target does not take ``piece``: what comes before it is copied, and then ``error`` is raised."""
        self._stop = (piece.base_offset, error)

    def skip_record(self, piece: OutputBatch) -> None:
        """The one record of ``piece`` is not acceptable, and a policy says to go on without it."""
        self._unacceptable.add(piece.base_offset)
        self._remedies[Reason.TOO_LARGE] = max(piece.next_offset, self._remedies.get(Reason.TOO_LARGE, 0))


def _sources(run: Sequence[_QueuedBatch]) -> list[AnyBatch]:
    """Those of ``run`` that hold something to copy."""
    return [entry.batch for entry in run if entry.skip is None]
