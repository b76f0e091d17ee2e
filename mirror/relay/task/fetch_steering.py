"""Decides which partitions a task fetches, from which offsets, and when: only what its copies can soon send."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final

from mirror.client import Consumer, OffsetAndMetadata, TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.relay.byte_limits import RateLimiter, SourceBudget
from mirror.relay.model.client_defaults import partition_fetch_bytes
from mirror.relay.partition.context import CopyHandle
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.log_reading import THROTTLED

_log: Final = logging.getLogger(__name__)

_UPDATE_ALL_MS: Final = 100
"""How often all copies are asked whether they want more while the source budget is short."""
_UPDATE_PAUSED_MS: Final = 1_000
"""How often paused copies are asked otherwise: a copy that is stepped is asked in the same turn, and none wants more
before it is. While 2,500 of 5,000 partitions were acquired, asking each 100 ms took 40% of the task's thread.
"""
_UPDATE_REFUSED_MS: Final = 10
"""How soon after that they are asked again if a copy was refused room in the source budget, and some was freed."""
_FIRST_RESPONSES_MS: Final = 1_000
"""How often responses are checked while a followed copy has had none: it may have nothing to fetch."""


# Invariant: A copy receives only what was fetched from the position that it asked for last; what does not continue
#   there is read again, never skipped.
# Test: tests/relay/task/
#   test_fetch_steering.py::test_rest_of_a_poll_is_released_once_the_copy_reads_from_where_it_begins
# Test: tests/relay/partition/
#   test_machine.py::test_followed_copy_reads_again_after_a_fetch_that_does_not_continue_the_last_one
class FetchSteering:
    """Assigns, seeks, pauses and resumes the partitions of a task's consumer.

    Copies call :meth:`read_from` and :meth:`stop_reading`; :meth:`update` applies both with the task's next turn. Until
    then a copy that has called :meth:`read_from` receives nothing: what was polled, or answered, before the seek does
    not belong to its new position, even if the offsets match by chance. What a poll returns after the seek does.
    """

    def __init__(
        self,
        consumer: Consumer,
        budget: SourceBudget,
        limiter: RateLimiter,
        *,
        max_partition_bytes: int,
        stall_ms: int,
        now: int,
        on_moved: Callable[[TopicPartition], None] | None = None,
    ) -> None:
        """``max_partition_bytes`` is the most to fetch of a partition; ``stall_ms`` is how long a source may be silent.

        ``on_moved`` is called with a source partition that is read from elsewhere from now on, or not at all.
        """
        self._consumer: Final = consumer
        self._budget: Final = budget
        self._limiter: Final = limiter
        self._on_moved: Final = on_moved
        self._most_partition_bytes: Final = max_partition_bytes
        self._max_partition_bytes = max_partition_bytes
        self._check_responses_ms: Final = max(1, stall_ms // 4)
        self._reading: dict[TopicPartition, CopyHandle] = {}
        """The copies whose last :meth:`read_from` was applied."""
        self._seeks: dict[TopicPartition, tuple[CopyHandle, OffsetAndMetadata]] = {}
        """The copies whose last :meth:`read_from` is to be applied."""
        self._assigned: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._changed: set[TopicPartition] = set()
        """Whose copies have begun or ended to read since the last turn."""
        self._updated_all_at = now
        self._check_responses_at = now
        self._is_throttled = False

    def size_for(self, partitions: int) -> None:
        """Fetch so much of each partition at a time that so many with a backlog have room in the buffer."""
        size = partition_fetch_bytes(self._most_partition_bytes, self._budget.limit, partitions)
        if size != self._max_partition_bytes:
            self._max_partition_bytes = size
            self._consumer.limit_partitions(size)

    # --- what copies ask for

    def read_from(self, copy: CopyHandle, offset: int, leader_epoch: int | None, topic_id: str) -> None:
        """Fetch from ``offset``, as :meth:`mirror.relay.partition.context.CopyContext.read_from`."""
        self.stop_reading(copy)
        self._changed.add(copy.source)
        self._seeks[copy.source] = copy, OffsetAndMetadata(offset, leader_epoch, topic_id=stored.topic_id(topic_id))

    def stop_reading(self, copy: CopyHandle) -> None:
        """Fetch nothing for ``copy`` until :meth:`read_from`."""
        if self._on_moved is not None:
            self._on_moved(copy.source)
        if self._reading.pop(copy.source, None) is not None:
            self._changed.add(copy.source)
        self._seeks.pop(copy.source, None)

    def source_error(self, source: TopicPartition) -> str:
        """Return why nothing comes from the source partition as ``': <error>'``, or ``''``."""
        response = self._consumer.last_responses().get(source)
        if response is not None and response.throttled_until_ms > 0:
            return f": {THROTTLED}"
        error = self._consumer.last_error(source)
        return f": {error}" if error is not None else ""

    # --- what the task's loop does in each turn

    def check_responses(self, now: int) -> None:
        """Notify copies of their brokers' responses."""
        if now < self._check_responses_at:
            return
        followed = [copy for copy in self._reading.values() if copy.range.open_ended]
        answered = throttled = 0
        responses = self._consumer.last_responses() if self._reading else {}
        for copy in self._reading.values():
            if (response := responses.get(copy.source)) is None:
                continue
            copy.on_source_response(response, now)
            answered += 1
            throttled += response.throttled_until_ms > 0
        if answered:
            self._log_throttling(throttled)
        first_awaited = any(copy.awaits_first_response for copy in followed)
        interval_ms = self._check_responses_ms
        self._check_responses_at = now + (min(interval_ms, _FIRST_RESPONSES_MS) if first_awaited else interval_ms)

    def _log_throttling(self, partitions: int) -> None:
        """Log when the source begins to throttle, and when it has ended: it may throttle for days."""
        if partitions and not self._is_throttled:
            _log.warning("%s partitions of the source wait: %s", f"{partitions:,}", THROTTLED)
        elif self._is_throttled and not partitions:
            _log.info("the source does not throttle any more")
        self._is_throttled = partitions > 0

    def update(self, now: int, stepped: Iterable[CopyHandle], active: Collection[CopyHandle]) -> None:
        """Apply new positions, then pause and resume: the ``stepped`` copies, and every second the paused ones.

        While the source budget is short, these are all ``active`` copies, every 100 ms.
        """
        if sought := self._apply_positions():
            self._check_responses_at = min(self._check_responses_at, now + _FIRST_RESPONSES_MS)
        candidates = {*stepped, *sought}
        if now >= self._update_all_at:
            self._updated_all_at = now
            if self._is_short:
                candidates = {*active}
            else:  # a copy that is fetched wants no less before it is stepped
                candidates.update(self._reading[tp] for tp in self._paused if tp in self._reading)
            self._budget.clear_refused()
        wanted = {copy.source: self._may_fetch(copy, now) for copy in candidates if copy.source in self._assigned}
        if pause := {tp for tp, wants in wanted.items() if not wants} - self._paused:
            self._consumer.pause(pause)
            self._paused |= pause
        if resume := {tp for tp, wants in wanted.items() if wants} & self._paused:
            self._consumer.resume(resume)
            self._paused -= resume

    @property
    def _is_short(self) -> bool:
        """Whether copies wait for room in the source budget, or may soon."""
        return self._budget.any_refused or self._budget.may_refuse(self._max_partition_bytes)

    @property
    def _update_all_at(self) -> int:
        """When :meth:`update` asks others than those that were stepped."""
        if self._budget.retry_refused:
            # A copy that was refused room is asked before one that has just freed some, which would take it again.
            return self._updated_all_at + _UPDATE_REFUSED_MS
        return self._updated_all_at + (_UPDATE_ALL_MS if self._is_short else _UPDATE_PAUSED_MS)

    def _apply_positions(self) -> Collection[CopyHandle]:
        """Assign and seek; return the copies that were sought.

        Only what has changed costs anything: thousands may change hands, a few in each turn.
        """
        if not self._changed:
            return ()
        ended = (self._changed - self._seeks.keys()) & self._assigned
        begun = self._seeks.keys() - self._assigned
        self._changed.clear()
        if ended:
            self._consumer.incremental_unassign(ended)
            self._assigned -= ended
            self._paused -= ended
        if begun:
            # Paused: else their offsets would be looked up before the seek.
            self._consumer.incremental_assign(begun, paused=True)
            self._assigned |= begun
            self._paused |= begun
        for tp, (copy, position) in self._seeks.items():
            self._consumer.seek(tp, position)
            self._reading[tp] = copy
        sought = [copy for copy, _ in self._seeks.values()]
        self._seeks.clear()
        return sought

    def _may_fetch(self, copy: CopyHandle, now: int) -> bool:
        wants = copy.wants_more
        if wants and not self._budget.may_fetch(copy.held_bytes, self._max_partition_bytes):
            copy.on_fetch_skipped(now, budget_exhausted=True)
            return False
        return wants

    # --- what the task's loop waits for

    @property
    def room(self) -> int:
        """Bytes that a poll may return."""
        return self._budget.free

    def throttled_ms(self, now: int) -> int:
        """How long the flow's rate limit forbids to fetch."""
        return self._limiter.wait_ms(now)

    @property
    def can_fetch(self) -> bool:
        """Whether there is room, and a partition that is not paused."""
        return self.room > 0 and len(self._paused) < len(self._assigned)

    def due_ms(self, now: int) -> int:
        """When :meth:`update` or :meth:`check_responses` is wanted next if nothing happens before."""
        due_ms = self._check_responses_at
        if self._paused:
            due_ms = min(due_ms, max(now + 1, self._update_all_at))
        if self._budget.any_refused and (retry_at := self._updated_all_at + _UPDATE_REFUSED_MS) > now:
            due_ms = min(due_ms, retry_at)
        return due_ms

    def may_retry_refused(self, now: int) -> bool:
        """Whether a copy that was refused room could be given some that is freed at ``now``."""
        return self._budget.any_refused and now >= self._updated_all_at + _UPDATE_REFUSED_MS

    def on_polled(self, fetched: Iterable[Fetched], now: int) -> Iterable[CopyHandle]:
        """Deliver the results of a poll; yield the copies that received some.

        A copy may call :meth:`read_from` for one of them: the later ones of its partition are released.
        """
        for result in fetched:
            self._limiter.on_received(result.size, now)
            copy = self._reading.get(result.tp)
            if copy is not None:
                copy.on_fetched(result, now)
                yield copy
            else:
                result.release()

    def on_not_polled(self, now: int) -> None:
        """Nothing was fetched until ``now``: no source can be blamed for its silence."""
        for copy in self._reading.values():
            copy.on_fetch_skipped(now)
