"""Finds where a copy continues if its target has lost acknowledged records: at the newest anchor that still stands."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from dataclasses import replace
from typing import Final

from mirror.client import Admin, TopicPartition
from mirror.relay.model.way import Way
from mirror.relay.progress.anchors import Anchor, stands, usable
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.lookup.lookup_results import StartPosition
from mirror.relay.progress.progress_topic import ProgressTopic
from mirror.relay.progress.target_log import TargetMark, truncated_error
from mirror.relay.progress.target_loss import LossKind, TargetLoss
from mirror.runtime.clock import SystemClock

_KEPT_MS: Final = 10_000
_FAILURE_KEPT_MS: Final = 3_000
"""An unavailable progress topic fails all copies that ask within this time: each read of it takes long. The copies have
the backoff of failed attempts."""


# Invariant: A target that lost acknowledged records is completed in order, behind the newest anchor that its leader
#   still has.
# Test: tests/relay/task/test_healing_on_fakes.py::test_what_was_lost_is_sent_again_behind_what_stands
class TargetHealing:
    """Looks for standing anchors; may be called by several threads, which wait."""

    def __init__(
        self,
        flow: str,
        target: Admin,
        topic: ProgressTopic,
        targets: Collection[TopicPartition],
        *,
        exactly_once: bool,
        now: Callable[[], int] | None = None,
    ) -> None:
        """``targets`` are all partitions that may be asked for: one read of the progress topic serves them all.

        ``now`` is in monotonic ms.
        """
        self._targets = frozenset(targets)
        self._lock: Final = threading.Lock()
        self._reading: Future[dict[TopicPartition, list[Anchor]]] | None = None
        self._kept_until_ms = 0
        self._now: Final = now or SystemClock().now
        self._flow: Final = flow
        self._target: Final = target
        self._topic: Final = topic
        self._exactly_once: Final = exactly_once

    def add_targets(self, targets: Collection[TopicPartition]) -> None:
        """Let these partitions be asked for, too."""
        with self._lock:
            self._targets |= frozenset(targets)
            self._reading = None  # it lacks them

    def remove_targets(self, targets: Collection[TopicPartition]) -> None:
        """These partitions are not asked for any more."""
        with self._lock:
            self._targets -= frozenset(targets)

    def start_at_anchor(
        self, tp: TopicPartition, progress: Progress, mark: TargetMark, cut: int, current: TargetMark, timeout_ms: int
    ) -> StartPosition:
        """Return the anchor at which the copy of ``progress`` into ``tp`` begins, whose log was cut back to ``cut``.

        ``mark`` is what the log had, ``current`` describes its present topic and leader. Raises FlowError
        (``target-truncated``) if there is no usable anchor, KafkaError.
        """
        kept = self._anchors_of(tp, timeout_ms)
        candidates = usable(
            kept,
            source_cluster_id=progress.source_cluster_id,
            topic_id=progress.topic_id,
            target_topic_id=current.topic_id,
            series=progress.series,
            copied_to=progress.offset,
            exactly_once=self._exactly_once,
        )
        anchor = self._newest_standing(
            tp, candidates, timeout_ms, atomic=self._exactly_once and progress.way is Way.TRANSACTIONS
        )
        if anchor is None:
            raise truncated_error(self._flow, tp, mark, cut, progress.offset, _none_stands(kept, candidates))
        stood = replace(anchor.target, topic_id=current.topic_id, leader_epoch=current.leader_epoch)
        loss = TargetLoss(
            flow=self._flow,
            kind=LossKind.TRUNCATED,
            progress=progress,
            end=mark.end,
            cut=cut,
            producer_ids=frozenset(one.target.producer_id for one in kept) | {mark.producer_id},
        )
        begin = replace(
            progress,
            offset=anchor.offset,
            leader_epoch=anchor.leader_epoch,
            target=stood,
            way=Way.SEQUENCES,  # a lower bound
            ended=False,
            searched=None,
        )
        return StartPosition(begin, stood.end, stood, loss=loss)

    def _anchors_of(self, tp: TopicPartition, timeout_ms: int) -> list[Anchor]:
        """Return what is known of ``tp``; a broker that loses records loses them in many partitions at once.

        An anchor that was written since is missing: an older one serves, too. If the progress topic is unavailable, all
        copies wait for the same read, not one after the other. Raises KafkaError.
        """
        with self._lock:
            reading = self._reading
            is_reader = reading is None or (reading.done() and self._now() >= self._kept_until_ms)
            if reading is None or is_reader:
                self._reading = reading = Future()
        if is_reader:
            self._read(reading, timeout_ms)
        return reading.result()[tp]

    def _read(self, reading: Future[dict[TopicPartition, list[Anchor]]], timeout_ms: int) -> None:
        try:
            anchors = self._topic.read_anchors(self._targets, timeout_ms)
        except BaseException as error:  # noqa: BLE001 - all that wait raise it
            self._kept_until_ms = self._now() + _FAILURE_KEPT_MS
            reading.set_exception(error)
        else:
            self._kept_until_ms = self._now() + _KEPT_MS
            reading.set_result(anchors)

    def _newest_standing(
        self, tp: TopicPartition, candidates: Iterable[Anchor], timeout_ms: int, *, atomic: bool
    ) -> Anchor | None:
        """Return the newest anchor that stands; in transactions (``atomic``) with the marker of its transaction.

        Without its marker a transaction is open, and is aborted with the next one of its producer.
        """
        ends: dict[int, tuple[int, int]] = {}
        for anchor in candidates:
            epoch = anchor.target.leader_epoch
            if epoch is None:
                known = -1, -1
            elif (found := ends.get(epoch)) is not None:
                known = found
            else:
                known = ends[epoch] = self._epoch_end(tp, epoch, timeout_ms)
            if stands(anchor, *known) and (not atomic or self._topic.is_committed(tp, anchor.target, timeout_ms)):
                return anchor
        return None

    def _epoch_end(self, tp: TopicPartition, epoch: int, timeout_ms: int) -> tuple[int, int]:
        found = self._target.epoch_ends_async({tp: epoch}, timeout_ms).result()
        if tp in found.failed:
            raise found.failed[tp]
        end = found[tp]
        return (-1, -1) if end is None else (end.leader_epoch, end.end_offset)


def _none_stands(kept: list[Anchor], candidates: list[Anchor]) -> str:
    if not kept:
        return "the progress topic has no anchor of it, from which on it could be completed"
    if not candidates:
        return "its anchors are of other topics, of a copy before it started over, or of one at least once (not exact)"
    return "none of its anchors is in what is left of the log"
