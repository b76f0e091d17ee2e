"""Commits progress outside transactions: one OffsetCommit for each group and interval, for all partitions of a task.

One request for each partition and interval would cost the target's coordinators, and this process, more than the data
of many partitions with little traffic.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.relay.progress.committed import SHARDS, group_of, lazy_group_of, shard_of

LAZY_INTERVALS: Final = 3
LAZY_MS: Final = 3_000
LAZY_BYTES: Final = 64 * 1024
"""By sequences, a partition that has sent less than so many bytes commits after so many intervals, but no later than
after ``LAZY_MS`` or one interval: 300 quiet partitions that committed each record took a third more CPU of their task,
and an eighth more of the target. The next attempt has little more than that to search. After 5 s a lag would not count
as caught up (``telemetry/lag/lags.py``)."""


def lazy_interval_ms(interval_ms: int) -> int:
    """Return how long few bytes may wait for their commit."""
    return max(interval_ms, min(LAZY_MS, interval_ms * LAZY_INTERVALS))


class OffsetAdmin(Protocol):
    """The part of ``Admin`` that is needed."""

    def commit_offset_async(
        self, group: str, tp: TopicPartition, offset: OffsetAndMetadata, timeout_ms: int
    ) -> Future[None]:
        """Commit the offset of one partition; those of a group share requests, one of which is in flight at a time."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    tp: TopicPartition
    offset: OffsetAndMetadata
    timeout_ms: int
    outcome: Future[None]


class ProgressCommitter:
    """Gathers what the copies of a task commit in one turn of its loop, and sends it with :meth:`flush`.

    Each partition succeeds, fails, is retried and expires on its own. Used on the task's thread only; the futures are
    completed on the network thread.
    """

    def __init__(self, admin: OffsetAdmin, flow: str, *, lazy: bool = False) -> None:
        """``lazy``: commit the lazy progress of copies by sequences, in groups of its own."""
        self._admin: Final = admin
        self._flow: Final = flow
        self._group_of: Final = lazy_group_of if lazy else group_of
        self._pending: list[_Pending] = []
        self.keeps_metadata = False
        """Whether the target is known to keep the metadata of committed offsets."""

    def commit(self, tp: TopicPartition, offset: OffsetAndMetadata, timeout_ms: int) -> Future[None]:
        """Commit ``offset`` as the progress of the target partition ``tp``, within ``timeout_ms`` of the flush.

        If the previous commit of ``tp`` still waits to be sent, this one is sent for both. The future fails with what
        :meth:`mirror.client.Admin.commit_offset_async` raises.
        """
        outcome: Future[None] = Future()
        self._pending.append(_Pending(tp, offset, timeout_ms, outcome))
        return outcome

    def flush(self) -> None:
        """Send what was gathered. The task calls it once in each turn, when all copies are stepped."""
        gathered, self._pending = self._pending, []
        for pending in gathered:
            group = self._group_of(self._flow, pending.tp)
            committed = self._admin.commit_offset_async(group, pending.tp, pending.offset, pending.timeout_ms)
            committed.add_done_callback(partial(_pass_on, pending.outcome))


def _pass_on(outcome: Future[None], committed: Future[None]) -> None:
    if (error := committed.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(None)


def commit_due_ms(tp: TopicPartition, since_ms: int, interval_ms: int) -> int:
    """Return when to commit the progress of ``tp`` that has been pending since ``since_ms``, in absolute ms.

    All partitions of a group are due at the same times, ``interval_ms`` apart, so that they share a request. The groups
    take turns within the interval. It is never later than ``since_ms + interval_ms``.
    """
    phase_ms = shard_of(tp) * interval_ms // SHARDS
    return since_ms + interval_ms - (since_ms - phase_ms) % max(1, interval_ms)
