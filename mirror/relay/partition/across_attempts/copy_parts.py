"""What the attempts of one copy share: the parts of a copy that outlive an attempt."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from mirror.relay.batches.aside import AsideOrigin
from mirror.relay.batches.exactly_once_way import WayChoice, WayRules
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.way import Way
from mirror.relay.partition.across_attempts.anchoring import AnchorMaker
from mirror.relay.partition.across_attempts.attempt_outcome import FailureClassifier
from mirror.relay.partition.across_attempts.gap_check import SourceGapCheck
from mirror.relay.partition.across_attempts.offset_indexing import OffsetIndexing
from mirror.relay.partition.across_attempts.result_recorder import ResultRecorder
from mirror.relay.partition.across_attempts.retry import RetryController
from mirror.relay.partition.across_attempts.target_check import TargetLogCheck
from mirror.relay.partition.attempts.source_reader import SourceReader
from mirror.relay.partition.context import CopyContext, CopyHandle
from mirror.relay.partition.waiting import PendingCall, awaited_text

if TYPE_CHECKING:
    from mirror.relay.batches.target_limits import TargetLimits


@dataclass(frozen=True, slots=True)
class CopyParts:
    """What the attempts of one copy share."""

    copy: CopyHandle
    context: CopyContext
    policy: CopyPolicy
    recorder: ResultRecorder
    reader: SourceReader
    failures: FailureClassifier
    retry: RetryController
    gap_check: SourceGapCheck
    target_check: TargetLogCheck
    anchors: AnchorMaker
    indexing: OffsetIndexing
    choice: WayChoice | None
    """Chooses the way of each batch; None if there is only one."""
    call: PendingCall

    @property
    def way(self) -> Way | None:
        """The way that the next attempt goes; None: at least once."""
        if self.choice is not None:
            return self.choice.way
        return Way.TRANSACTIONS if self.policy.exactly_once else None


def make_parts(
    copy: CopyHandle,
    policy: CopyPolicy,
    limits: TargetLimits,
    batch_size: int,
    context: CopyContext,
    now: int,
    rules: WayRules | None,
) -> CopyParts:
    """Make the parts of ``copy``; ``rules`` as in :class:`.partition_copy.PartitionCopy`."""
    copied: Final = copy.range
    recorder = ResultRecorder(copied, context.unix_ms, now, context.observer)
    reader = SourceReader(
        copied.end,
        limits,
        policy,
        batch_size,
        reencode=context.reencoder(copy.source),
        budget=context.source_budget,
        is_foreign=context.foreign_finder(copy.source, lambda: recorder.topic_id),
        origin=AsideOrigin(copied.flow, copied.source_cluster_id, copied.topic, copied.partition, copied.target_topic)
        if policy.aside
        else None,
    )
    failures = FailureClassifier(copy.source, copy.target, policy, reader.pipeline, context.unix_ms)

    def awaited() -> str:
        return awaited_text(recorder.timeline.phase, context.no_leader_reason(copy.target))

    return CopyParts(
        copy=copy,
        context=context,
        policy=policy,
        recorder=recorder,
        reader=reader,
        failures=failures,
        retry=RetryController(
            copied,
            recorder,
            failures,
            context.backoff,
            context.unix_ms,
            context.may_retry,
            context.may_fence_again,
            awaited,
        ),
        gap_check=SourceGapCheck(
            copied, policy, reader, context.timeouts.stall_ms, partial(context.source_error, copy.source)
        ),
        target_check=TargetLogCheck(copy, context),
        anchors=AnchorMaker(exactly_once=policy.exactly_once),
        indexing=OffsetIndexing(exactly_once=policy.exactly_once, interval_ms=policy.index_interval_ms),
        choice=WayChoice(rules, copy.source) if rules is not None and policy.exactly_once else None,
        call=PendingCall(partial(context.step_when_done, copy)),
    )
