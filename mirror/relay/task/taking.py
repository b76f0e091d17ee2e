"""Reads what partitions need to begin that a task is given while it lives: their rules, and their progress."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mirror.client import Admin, TopicPartition
from mirror.errors import KafkaError
from mirror.relay.model.assignments import target_of
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.progress.committed import Progress, read_each_progress
from mirror.relay.task.topic_rules import TopicRules

_PROGRESS_TIMEOUT_MS: Final = 3_000
"""How long progress is waited for that is read for all partitions together. One whose coordinator is away for longer
must not delay the others: it reads its own when it begins."""

Selection = Callable[[str], str | None]
"""Returns the target topic of a source topic, by the flow's configuration; None if the flow does not copy it."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What was read for ranges that a task is given."""

    ranges: Sequence[Range]
    """Those that may begin."""
    rules: TopicRules
    progress: Mapping[TopicPartition, Progress]
    """By target partition, where it was read."""
    refused: Sequence[RangeResult] = ()
    """The results of those that may not."""


LoadTaken = Callable[[Sequence[Range]], Taken]
"""Reads what ranges of new topics need to begin. It waits for the clusters. Raises MirrorError."""


def load_taken(
    target: Admin,
    policy: CopyPolicy,
    read_rules: Callable[[Sequence[Range]], TopicRules],
    selection: Selection | None,
    ranges: Sequence[Range],
) -> Taken:
    """Return those of ``ranges`` that the flow copies, with their progress and rules.

    ``selection`` is that of the configuration on this host: a client that may write assignments must not have the flow
    copy other topics. None: all is copied.
    """
    if selection is None:
        return Taken(ranges, read_rules(ranges), read_progress(target, policy, ranges))
    refused = [_refused(one) for one in ranges if selection(one.topic) != one.target_topic]
    ranges = [one for one in ranges if selection(one.topic) == one.target_topic]
    rules = read_rules(ranges) if ranges else TopicRules({}, {})
    return Taken(ranges, rules, read_progress(target, policy, ranges), refused)


def _refused(one: Range) -> RangeResult:
    error = (
        f"the configuration on {socket.gethostname()}, where a task was given the partition, does not select topic"
        f" {one.topic} for {one.target_topic}: bring the file there up to date, and restart the flow"
    )
    return RangeResult.initial(one, one.start, Outcome.FAILED, error)


def read_progress(target: Admin, policy: CopyPolicy, ranges: Sequence[Range]) -> dict[TopicPartition, Progress]:
    """Return the progress that the copies of ``ranges`` may begin with, read with few requests for thousands of them.

    Each reads its own if that of all cannot be read.
    """
    followed = {target_of(one): one for one in ranges if one.open_ended}
    if not followed or not policy.exactly_once:
        return {}
    try:
        found = read_each_progress(target, ranges[0].flow, followed, _PROGRESS_TIMEOUT_MS)
    except KafkaError:
        return {}
    return {tp: progress for tp, progress in found.items() if progress.target is not None}
