"""Any source, any order of answers and failures: what is on the target in the end is the source.

Exactly once: each record once, in order, and progress agrees with the data after each commit. At least once: progress
never passes what is not there, and what is written twice begins at a progress.
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
from mirror.relay.partition.states import ABORT_TIMEOUT_MS, CopyState
from mirror.relay.progress.gaps import SourceState
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import TRANSACTIONAL, Batch
from tests.fakes.clock import FakeClock
from tests.fakes.record_batches import ABORT, batch, build, build_marker
from tests.relay.copy_harness import SOURCE, CopyHarness


class Entry(NamedTuple):
    """A batch of the source's log: ``deltas`` are its records' places in it."""

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
    """Data with holes within and between batches, empty batches, and aborted transactions with their markers."""
    found: list[Entry] = []
    at = draw(st.integers(0, 3))
    for kind in draw(st.lists(st.sampled_from(["data", "data", "data", "empty", "aborted"]), min_size=1, max_size=10)):
        at += draw(st.sampled_from([0, 0, 0, 2]))
        count = 0 if kind == "empty" else draw(st.integers(1, 3))
        deltas = tuple(draw(st.sampled_from([range(count), range(0, 2 * count, 2)])))
        last = max(deltas, default=0) + draw(st.sampled_from([0, 0, 1]))
        found.append(Entry(kind, at, deltas, last))
        at += last + 1
        if kind == "aborted":
            found.append(Entry("marker", at, (0,), 0))
            at += 1
    return found


class World:
    """A source's log, a target, and one copy after the other between them; ``choose`` picks what happens next."""

    def __init__(self, log: list[Entry], *, atomic: bool, batch_size: int, choose: Callable[[int], int]) -> None:
        self.log = log
        self.atomic = atomic
        self.batch_size = batch_size
        self.choose = choose
        self.end = log[-1].base + log[-1].last_delta + 1
        self.clock = FakeClock()
        self.written: list[int] = []
        self.progress: int | None = None
        self.run = self._begin()
        self._taken: list[int] = []

    def _begin(self) -> CopyHarness:
        run = CopyHarness(self.end, atomic=self.atomic, batch_size=self.batch_size, clock=self.clock)
        run.context.retries_allowed = bool(self.choose(2))
        return run

    def values(self, below: int) -> list[int]:
        return [value for one in self.log for value in one.values if value < below]

    # --- what may happen

    def turn(self) -> None:
        """One thing that can happen now does."""
        run = self.run
        carrier = run.writer
        match run.copy.state:
            case CopyState.DONE:
                assert run.result.end == (self.progress or 0) or not self._told_progress
                run.assert_nothing_held()
                self.run = self._begin()
            case CopyState.OPENING:
                self._open()
            case CopyState.RESOLVING_PROGRESS:
                assert self.progress is None
                run.resolved()
            case CopyState.CHECKING_SOURCE:
                run.context.source_lookups[-1].set_result(SourceState(topic_id="the-id", earliest=0, end=self.end))
            case CopyState.ABORTING:
                self._drop()
            case CopyState.BACKING_OFF:
                run.advance(2_000)
            case CopyState.COPYING:
                pending = [n for n, one in enumerate(carrier.sent) if not one.answered]
                options: list[Callable[[], None]] = [self._fetch, lambda: run.advance(1_000)]
                if pending:
                    options += [lambda: self._answer(pending[0])] * 3
                elif run.committing is not None:
                    options += [self._end_commit] * 3
                options[self.choose(len(options))]()
        self.run.context.run_until_idle()

    @property
    def _told_progress(self) -> bool:
        return self.run.copy.result.outcome is Outcome.COMPLETE

    def _open(self) -> None:
        self._taken = []
        if self.choose(6) == 5:
            self.run.writer.opened.set_exception(KafkaTimeout("no coordinator"))
        elif self.progress is None:
            self.run.opened_with(None)
        else:
            self.run.opened(self.progress)

    def _fetch(self) -> None:
        run = self.run
        if run.context.read_position is None or run.copy._reader.position >= self.end or not run.copy.wants_more:
            return
        if self.choose(12) == 11:
            run.fetch_fails(OffsetOutOfRange("not here", 1))
            return
        at = run.copy._reader.position
        if self.choose(8) == 7:  # asked for by an earlier attempt
            one = self.log[-1].make()
            stale = Fetched(tp=SOURCE, offset=at + 1, next_offset=one.next_offset, batches=[one], size=one.size)
            run.copy.on_fetched(stale, self.clock.now())
            return
        rest = [one for one in self.log if one.base + one.last_delta >= at]
        some = rest[: 1 + self.choose(4)]
        aborted = tuple(AbortedTransaction(9, one.base) for one in some if one.kind == "aborted")
        run.fetch(*(one.make() for one in some), aborted=aborted, stable_end=self.end)

    def _answer(self, number: int) -> None:
        values = [int(value) for value in self.run.writer.sent[number].values]
        what = self.choose(8)
        if what < 6:
            self._take(values)
            self.run.ack(number)
            return
        if what == 6 and not self.atomic:
            self._take(values)  # written, and nobody heard of it
        error: KafkaError = DeliveryTimeout("late") if self.choose(2) else BrokerError("odd", 99)
        commits = self.run.writer.commits
        if commits and self.atomic and not commits[-1].future.done():
            abort = NeedsAbort("to be aborted")
            abort.__cause__ = error
            commits[-1].future.set_exception(abort)
        self.run.fail(number, error)

    def _take(self, values: list[int]) -> None:
        if self.atomic:
            self._taken += values
            return
        if self.written and values:
            known = self.values(10**9)
            before, now = known.index(self.written[-1]), known.index(values[0])
            assert now <= before + 1, "nothing is left out"
            assert now == before + 1 or values[0] >= (self.progress or 0), "repeats begin at a progress"
        self.written += values

    def _end_commit(self) -> None:
        offset = self.run.committing
        assert offset is not None
        what = self.choose(6)
        if what in {0, 1, 2, 4}:
            self._keep(offset)
        error = [None, None, None, KafkaTimeout("not done"), KafkaTimeout("done"), BrokerError("forgot", 49)][what]
        self.run.commit(error)

    def _keep(self, offset: int) -> None:
        if self.atomic:
            self.written += self._taken
            self._taken = []
            assert self.written == self.values(offset), "progress and data agree"
        assert set(self.values(offset)) <= set(self.written), "progress never passes what is not there"
        assert offset >= (self.progress or 0)
        self.progress = offset

    def _drop(self) -> None:
        carrier = self.run.writer
        if carrier.commits and not carrier.commits[-1].future.done() and not self.atomic:
            self._end_commit()
        elif carrier.closed is None or self.choose(3) == 0:
            self.run.advance(ABORT_TIMEOUT_MS)
        else:
            self.run.closed()
        self._taken = []

    # --- the end

    def finish(self) -> None:
        """Nothing goes wrong any more."""
        self.choose = lambda _: 0
        for step in range(600):
            if self.run.copy.done and self.run.result.outcome is Outcome.COMPLETE:
                break
            # By turns, or the copy would only ever read.
            self.choose = (lambda count: count - 1) if self._must_answer() and step % 2 else (lambda _: 0)
            if self._must_answer():
                self._all_well()
            else:
                self.turn()
        result = self.run.result
        assert result.outcome is Outcome.COMPLETE, result.error
        assert self.progress == result.end >= self.end
        self.run.assert_nothing_held()
        assert list(dict.fromkeys(self.written)) == self.values(self.end)
        if self.atomic:
            assert len(set(self.written)) == len(self.written)

    def _must_answer(self) -> bool:
        carrier = self.run.writer
        unanswered = any(not one.answered for one in carrier.sent)
        return self.run.copy.state is CopyState.COPYING and (unanswered or self.run.committing is not None)

    def _all_well(self) -> None:
        self.choose = lambda _: 0
        pending = [n for n, one in enumerate(self.run.writer.sent) if not one.answered]
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
    turns=st.integers(0, 120),
)
@settings(max_examples=200, deadline=None)
def test_whatever_happens_the_target_holds_the_source(
    log: list[Entry], atomic: bool, batch_size: int, seed: int, turns: int
) -> None:
    world = World(log, atomic=atomic, batch_size=batch_size, choose=random.Random(seed).randrange)
    for _ in range(turns):
        world.turn()
    world.finish()
