"""A model of any source log with any order of answers and failures: in the end, the target holds the source.

Exactly once, each record is written once, in order, and progress agrees with the data after each commit. At least once,
progress never passes a record that is not written, and repeated records begin at a committed progress.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.consumer.fetched import Fetched
from mirror.errors import BrokerError, DeliveryTimeout, KafkaError, KafkaTimeout, NeedsAbort, OffsetOutOfRange
from mirror.relay.model.ranges import Outcome
from mirror.relay.partition.limits import ABORT_TIMEOUT_MS
from mirror.relay.partition.states import CopyState
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.gaps import SourceState
from mirror.relay.progress.target_log import TargetMark
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import TRANSACTIONAL, Batch
from tests.examples import examples
from tests.fakes.clock import FakeClock
from tests.fakes.record_batches import ABORT, batch, build, build_marker
from tests.relay.copy_harness import CopyHarness
from tests.relay.hand_context import SOURCE


class Entry(NamedTuple):
    """A batch of the source's log; ``deltas`` are the offsets of its records, relative to ``base``."""

    kind: str
    base: int
    deltas: tuple[int, ...]
    last_delta: int

    @property
    def values(self) -> list[int]:
        return [self.base + delta for delta in self.deltas] if self.kind == "data" else []

    def make(self) -> Batch:
        if self.kind == "marker":
            return batch(build_marker(9, 0, ABORT, base_offset=self.base))
        values = [b"%d" % (self.base + delta) for delta in self.deltas]
        aborted = self.kind == "aborted"
        return batch(
            build(
                values,
                base_offset=self.base,
                deltas=self.deltas,
                last_offset_delta=self.last_delta,
                attributes=TRANSACTIONAL if aborted else 0,
                producer_id=9 if aborted else -1,
            )
        )


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    """Generate data with gaps within and between batches, empty batches, and aborted transactions with markers."""
    found: list[Entry] = []
    offset = draw(st.integers(0, 3))
    for kind in draw(st.lists(st.sampled_from(["data", "data", "data", "empty", "aborted"]), min_size=1, max_size=10)):
        offset += draw(st.sampled_from([0, 0, 0, 2]))
        count = 0 if kind == "empty" else draw(st.integers(1, 3))
        deltas = tuple(draw(st.sampled_from([range(count), range(0, 2 * count, 2)])))
        last = max(deltas, default=0) + draw(st.sampled_from([0, 0, 1]))
        found.append(Entry(kind, offset, deltas, last))
        offset += last + 1
        if kind == "aborted":
            found.append(Entry("marker", offset, (0,), 0))
            offset += 1
    return found


class CopyModel:
    """A source's log, a target, and copies between them, one after another; ``choose`` picks the next event."""

    def __init__(self, log: list[Entry], *, atomic: bool, batch_size: int, choose: Callable[[int], int]) -> None:
        self.log = log
        self.atomic = atomic
        self.batch_size = batch_size
        self.choose = choose
        self.end = log[-1].base + log[-1].last_delta + 1
        self.clock = FakeClock()
        self.written: list[int] = []
        self.progress: int | None = None
        self.stored: Progress | None = None
        self.mark: TargetMark | None = None
        """What an attempt that begins without progress finds of the target's log."""
        self.run = self._begin()
        self._in_transaction: list[int] = []

    def _begin(self) -> CopyHarness:
        run = CopyHarness(self.end, atomic=self.atomic, batch_size=self.batch_size, clock=self.clock)
        run.context.retries_allowed = bool(self.choose(2))
        return run

    def values(self, below: int) -> list[int]:
        return [value for entry in self.log for value in entry.values if value < below]

    # --- events

    def step(self) -> None:
        """Let one event happen that is possible now."""
        run = self.run
        match run.copy.state:
            case CopyState.DONE:
                assert run.result.end == (self.progress or 0) or not self._is_complete
                run.assert_nothing_held()
                self.run = self._begin()
            case CopyState.OPENING:
                self._open()
            case CopyState.RESOLVING_PROGRESS:
                assert self.progress is None
                run.resolved(mark=self.mark)
            case CopyState.CHECKING_SOURCE:
                run.context.source_lookups[-1].set_result(SourceState(topic_id="the-id", earliest=0, end=self.end))
            case CopyState.ABORTING:
                self._abort()
            case CopyState.BACKING_OFF:
                run.advance(2_000)
            case CopyState.COPYING:
                pending = run.unanswered
                options: list[Callable[[], None]] = [self._fetch, lambda: run.advance(1_000)]
                if pending:
                    options += [lambda: self._answer(pending[0])] * 3
                elif run.committing is not None:
                    options += [self._end_commit] * 3
                options[self.choose(len(options))]()
        self.run.context.run_until_idle()

    @property
    def _is_complete(self) -> bool:
        return self.run.copy.result.outcome is Outcome.COMPLETE

    def _open(self) -> None:
        self._in_transaction = []
        if self.choose(6) == 5:
            self.run.writer.opened.set_exception(KafkaTimeout("no coordinator"))
        elif self.progress is None:
            self.run.opened_with(None)
        else:
            self.run.opened_with(self.stored)

    def _fetch(self) -> None:
        run = self.run
        if run.context.read_position is None or run.context.fetch_offset >= self.end or not run.copy.wants_more:
            return
        if self.choose(12) == 11:
            run.fetch_fails(OffsetOutOfRange("not here", 1))
            return
        offset = run.context.fetch_offset
        if self.choose(24) == 23:  # it does not continue the last one: the copy fails, and skips nothing
            last = self.log[-1].make()
            wrong = Fetched(tp=SOURCE, offset=offset + 1, next_offset=last.next_offset, batches=[last], size=last.size)
            run.copy.on_fetched(wrong, self.clock.now())
            return
        rest = [entry for entry in self.log if entry.base + entry.last_delta >= offset]
        some = rest[: 1 + self.choose(4)]
        aborted = tuple(AbortedTransaction(9, entry.base) for entry in some if entry.kind == "aborted")
        run.fetch(*(entry.make() for entry in some), aborted=aborted, stable_end=self.end)

    def _answer(self, number: int) -> None:
        values = [int(value) for value in self.run.writer.sent[number].values]
        event = self.choose(8)
        if event < 6:
            base_offset = self._write(values)
            self.run.ack(number, base_offset=base_offset)
            return
        if event == 6 and not self.atomic:
            self._write(values)  # written, but its acknowledgement is lost
        error: KafkaError = DeliveryTimeout("late") if self.choose(2) else BrokerError("odd", 99)
        commits = self.run.writer.commits
        if commits and self.atomic and not commits[-1].future.done():
            abort = NeedsAbort("to be aborted")
            abort.__cause__ = error
            commits[-1].future.set_exception(abort)
        self.run.fail(number, error)

    def _write(self, values: list[int]) -> int | None:
        """Append ``values``; return their target offset if the model has one."""
        if self.atomic:
            self._in_transaction += values
            return None
        if self.written and values:
            values_in_order = self.values(10**9)
            last, first = values_in_order.index(self.written[-1]), values_in_order.index(values[0])
            assert first <= last + 1, "no record is left out"
            assert first == last + 1 or values[0] >= (self.progress or 0), "repeats begin at a progress"
        self.written += values
        return None

    def _end_commit(self) -> None:
        offset = self.run.committing
        assert offset is not None
        event = self.choose(6)
        if event in {0, 1, 2, 4}:
            self._store(offset)
        error = [None, None, None, KafkaTimeout("not done"), KafkaTimeout("done"), BrokerError("forgot", 49)][event]
        self.run.commit(error)

    def _store(self, offset: int) -> None:
        if self.atomic:
            self.written += self._in_transaction
            self._in_transaction = []
            assert self.written == self.values(offset), "progress and data agree"
        assert set(self.values(offset)) <= set(self.written), "progress never passes a record that is not written"
        assert offset >= (self.progress or 0)
        self.progress, self.stored = offset, self.run.writer.commits[-1].progress

    def _abort(self) -> None:
        writer = self.run.writer
        if writer.commits and not writer.commits[-1].future.done() and not self.atomic:
            self._end_commit()
        elif writer.closed is None or self.choose(3) == 0:
            self.run.advance(ABORT_TIMEOUT_MS)
        else:
            self.run.closed()
        self._in_transaction = []

    # --- the end

    def finish(self) -> None:
        """Complete the copy without further failures."""
        self.choose = lambda _: 0
        for step in range(600):
            if self.run.copy.done and self.run.result.outcome is Outcome.COMPLETE:
                break
            # In steps: otherwise the copy would only read.
            self.choose = (lambda count: count - 1) if self._awaits_answer() and step % 2 else (lambda _: 0)
            if self._awaits_answer():
                self._succeed()
            else:
                self.step()
        result = self.run.result
        assert result.outcome is Outcome.COMPLETE, result.error
        assert self.progress == result.end >= self.end
        self.run.assert_nothing_held()
        assert list(dict.fromkeys(self.written)) == self.values(self.end)
        if self.atomic:
            assert len(set(self.written)) == len(self.written)

    def _awaits_answer(self) -> bool:
        unanswered = bool(self.run.unanswered)
        return self.run.copy.state is CopyState.COPYING and (unanswered or self.run.committing is not None)

    def _succeed(self) -> None:
        self.choose = lambda _: 0
        pending = self.run.unanswered
        if pending:
            self._answer(pending[0])
        else:
            self._end_commit()
        self.run.context.run_until_idle()


@given(
    log=logs(),
    atomic=st.booleans(),
    batch_size=st.sampled_from([1, 10_000, 262_144]),
    seed=st.integers(0, 2**32),
    steps=st.integers(0, 120),
)
@settings(max_examples=examples(80, 200), deadline=None)
def test_target_holds_the_source_after_any_failures(
    log: list[Entry], atomic: bool, batch_size: int, seed: int, steps: int
) -> None:
    model = CopyModel(log, atomic=atomic, batch_size=batch_size, choose=random.Random(seed).randrange)
    for _ in range(steps):
        model.step()
    model.finish()
