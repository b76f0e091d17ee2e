"""Finds what a flow has copied in transactions whose commits of the progress were lost: it is in the target's log.

An unclean election may remove the last commits from a partition of ``__consumer_offsets``. The progress is behind the
records then, and looks exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mirror.client import Consumer, OffsetAndMetadata
from mirror.closing import Closing
from mirror.errors import KafkaError
from mirror.producer.batch.queue import ProducerId
from mirror.relay.batches.own_appends import OwnAppends, committed_behind
from mirror.relay.model.ranges import OPEN_END
from mirror.relay.model.way import Way
from mirror.relay.progress import stored_json as stored_ids
from mirror.relay.progress.log_reading import read_long_log
from mirror.relay.progress.target_log import TargetMark, is_other_topic
from mirror.takeover.continuation import Continuation, Facts, TargetLog, unreadable
from mirror.takeover.stored_offsets import READING
from mirror.timing import Clock

_NO_EPOCH: Final = -1
"""No marker has it: the log is read to its end."""


class LostCommits(Closing):
    """Reads the target's logs behind the progress. Its calls wait for the cluster; use it in one thread."""

    def __init__(self, target_options: Mapping[str, object], clock: Clock, stall_ms: int, *, markers: int) -> None:
        """Reading a log fails if nothing arrives for ``stall_ms``.

        ``markers`` is how many were written to each partition since its last copy, to fence.
        """
        self._target: Final = Consumer({**target_options, **READING, "isolation.level": "read_uncommitted"})
        self._clock: Final = clock
        self._stall_ms: Final = stall_ms
        self._markers: Final = markers

    def close(self) -> None:
        self._target.close(timeout_ms=0)

    def check(self, facts: Facts | Continuation) -> tuple[Facts | Continuation, bool]:
        """Return ``facts``, and whether the target has more of the flow; a Continuation if its log cannot be read."""
        if isinstance(facts, Continuation) or facts.progress is None or facts.progress.way is not Way.TRANSACTIONS:
            return facts, False
        mark, log = facts.progress.target, facts.target_log
        if mark is None or log is None or is_other_topic(mark, log.topic_id):
            return facts, False
        if not mark.may_precede_appends(log.end - self._markers):
            return facts, False
        try:
            return facts, self._has_more(facts, mark, log)
        except KafkaError as error:
            return unreadable(facts.source, facts.target, facts.stored, str(error)), False

    def _has_more(self, facts: Facts, mark: TargetMark, log: TargetLog) -> bool:
        assert facts.progress is not None  # noqa: S101 - it has a mark
        no_fence = ProducerId(mark.producer_id, _NO_EPOCH)
        producer_ids = facts.progress.appender_ids
        start = mark.exact_end
        # Behind a progress that has all of the source, the first transaction is the one that has stored it.
        mark_end = mark.end if facts.source_log.stable_end > facts.progress.offset else OPEN_END
        appends = OwnAppends(start, producer_ids, no_fence, committed_behind(mark), mark_end)
        begin = OffsetAndMetadata(max(start, log.first), topic_id=stored_ids.topic_id(log.topic_id))
        for fetched in read_long_log(self._target, facts.target, begin, log.end, self._clock, self._stall_ms):
            appends.add(fetched.batches)
        return appends.first is not None
