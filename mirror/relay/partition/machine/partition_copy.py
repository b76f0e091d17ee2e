"""The copy of one range, as its task has it: what it wants, what comes from its source, and what has come of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.cluster.types import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.consumer.positions import LastResponse
from mirror.relay.batches.exactly_once_way import WayRules
from mirror.relay.batches.trace_parents import TraceParents
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range, RangeResult
from mirror.relay.partition.across_attempts.copy_parts import make_parts
from mirror.relay.partition.context import CopyContext
from mirror.relay.partition.machine.copy_machine import CopyMachine
from mirror.relay.partition.machine.opening import planned_progress
from mirror.relay.partition.states import CopyState
from mirror.relay.progress.committed import Progress
from mirror.timing import FOREVER_MS

if TYPE_CHECKING:
    from mirror.relay.batches.target_limits import TargetLimits


# Invariant: Whatever fails, comes late or comes twice, the target holds a prefix of the source's records, or the
#   partition has a named error.
# Test: tests/relay/partition/test_machine_model.py::test_target_holds_the_source_after_any_failures
# Test: tests/relay/partition/test_sequences_model.py::TestSequences
# Test: tests/relay/partition/test_stream_model.py::TestEverything
# Test: tests/relay/partition/test_stream_races.py::test_a_partition_is_moved_while_batches_of_it_have_no_answer
class PartitionCopy:
    """Copies one range, on one thread: :meth:`step`, :meth:`on_fetched` and :meth:`wind_up` do everything."""

    def __init__(
        self,
        copied: Range,
        policy: CopyPolicy,
        limits: TargetLimits,
        batch_size: int,
        context: CopyContext,
        now: int,
        rules: WayRules | None = None,
        progress: Progress | None = None,
    ) -> None:
        """``rules`` say which way batches go exactly once; None: in transactions. ``progress`` was read before."""
        self.range: Final = copied
        self.source: Final = TopicPartition(copied.topic, copied.partition)
        self.target: Final = TopicPartition(copied.target_topic, copied.partition)
        self._context: Final = context
        self._parts: Final = make_parts(self, policy, limits, batch_size, context, now, rules)
        self.recorder: Final = self._parts.recorder
        self._reader: Final = self._parts.reader
        self._retry: Final = self._parts.retry
        self._traces: Final = TraceParents(now)
        self._machine: Final = CopyMachine(self._parts, planned_progress(copied, progress), now)

    # --- queries

    @property
    def state(self) -> CopyState:
        """The state of its machine."""
        return self._machine.state

    @property
    def result(self) -> RangeResult:
        """The result; final when the copy is :attr:`done`."""
        return self.recorder.result

    def result_at(self, now: int) -> RangeResult:
        """Return what has come of the copy by ``now``; without the timeline, unless it is :attr:`done`."""
        if self.done:
            return self.result
        return self._retry.result_at(now, self._machine.attempt, self._context.timeouts.commit_interval_ms)

    @property
    def failing(self) -> bool:
        """Whether its last attempt has failed, and none has committed or caught up since."""
        return self._retry.trouble is not None

    @property
    def done(self) -> bool:
        """Whether :attr:`result` is final."""
        return self.state is CopyState.DONE

    @property
    def expired(self) -> bool:
        """Whether it has expired, and has committed nothing since."""
        return self._parts.failures.expiries > 0

    @property
    def winding_up(self) -> bool:
        """Whether it is to end: nothing more is sent, and what is acknowledged is committed."""
        return self._retry.winding_up

    @property
    def wants_more(self) -> bool:
        """Whether it can use more of the source."""
        attempt = self._machine.attempt
        return attempt is not None and attempt.wants_more

    @property
    def held_bytes(self) -> int:
        """Fetched bytes that it still needs."""
        return self._reader.held_bytes

    @property
    def awaits_acknowledgement(self) -> bool:
        """Whether an acknowledgement should wake the task."""
        attempt = self._machine.attempt
        return attempt is not None and attempt.awaits_acknowledgement

    @property
    def awaits_first_response(self) -> bool:
        """Whether it reads, and the source has not reported its end yet."""
        return self._machine.attempt is not None and self._reader.last_stable_offset == FOREVER_MS

    def due_ms(self, now: int) -> int:
        """When :meth:`step` is wanted next if nothing happens before."""
        return self._machine.due_ms(now)

    def release(self) -> None:
        """Free what it holds, once its result and its progress were taken. It must not be stepped any more.

        It refers to its parts, and they to it: without this they would be freed by a collection only, which stops all
        threads. Callbacks of requests in flight may still call it.
        """
        self._machine.release()
        for part in ("_context", "_parts", "_reader", "_retry"):
            delattr(self, part)

    # --- the source's responses

    def on_fetched(self, fetched: Fetched, now: int) -> None:
        """Take a fetch's batches, or its error."""
        if (attempt := self._machine.attempt) is None or self.winding_up:
            return
        trace = self._traces.sample(fetched, now)  # before the reader, which releases what it does not want
        self._reader.on_fetched(fetched, now)
        attempt.budget_exhausted = False
        if trace is not None:
            self.recorder.timeline.add_trace(trace)
        if self._reader.error is None:
            self._parts.gap_check.on_fetched()
            self.recorder.set_topic_id(str(fetched.topic_id or ""))
            self._retry.last_failure = None
        if self._reader.ended:
            self._context.stop_reading(self)
        self.step(now)

    def on_source_response(self, response: LastResponse, now: int) -> None:
        """This is the last response of the source's broker.

        A source that throttles the client has not stalled (KIP-219), nor has a followed one that has nothing new.
        """
        attempt, reader = self._machine.attempt, self._reader
        if attempt is None:
            return
        if not self.range.open_ended:
            if response.throttled_until_ms > 0:
                reader.on_throttled(response.throttled_until_ms, now)
            return
        if response.at_ms > reader.last_response_ms:
            reader.last_response_ms, self._retry.last_failure = response.at_ms, None
        if response.end is not None and self.awaits_first_response and reader.confirm_end(response.end):
            self.recorder.on_nothing_to_fetch(attempt, reader)

    def on_fetch_skipped(self, now: int, *, budget_exhausted: bool = False) -> None:
        """Nothing is fetched at ``now``: the source cannot be blamed for its silence."""
        if (attempt := self._machine.attempt) is not None:
            self._reader.last_response_ms = max(now, self._reader.last_response_ms)
            attempt.budget_exhausted = attempt.budget_exhausted or budget_exhausted

    # --- steps

    def step(self, now: int) -> None:
        """Make all the progress that is possible without waiting."""
        self._machine.step(now)

    def wind_up(self, now: int, *, immediately: bool) -> None:
        """End in order: commit what is acknowledged, and abort the rest; ``immediately``: what is not committed by now.

        A copy that is still opening completes that first: only then does it know whether anything was to be copied.
        """
        self._retry.winding_up = True
        self._machine.stop(now, immediately=immediately)

    # --- while it lives long

    def forget_refusals(self) -> None:
        """Let what a refusal reaches begin small again."""
        self._reader.pipeline.remedies.forget_reach()

    def set_rules(self, limits: TargetLimits, rules: WayRules | None) -> None:
        """Copy by these rules from now on."""
        self._reader.pipeline.set_limits(limits)
        if self._parts.choice is not None and rules is not None:
            self._parts.choice.set_rules(rules)

    @property
    def renewal_due(self) -> bool:
        """Whether brokers may forget the progress soon, or the fence under which something was sent serves no longer.

        The next record would wait for another fence. A partition that has nothing to copy needs none until then.
        """
        attempt = self._machine.attempt
        fence_ended = attempt is not None and attempt.used_fence_until_ms <= self._context.unix_ms()
        return fence_ended or self.recorder.is_renewal_due(self._parts.policy.renew_ms)

    def renew(self) -> bool:
        """Begin another attempt with the next step if :attr:`renewal_due`; return whether.

        It commits the progress again. By sequences only a fence writes the claim, and only a new attempt fences. An
        attempt that has more to send goes on, and is asked again later.
        """
        attempt = self._machine.attempt
        if attempt is None or not self.renewal_due:
            return False
        attempt.end_when_committed()
        return True
