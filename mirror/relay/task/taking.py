"""Reads what partitions need to begin that a task is given while it lives: their rules, and their progress."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mirror.client import Admin
from mirror.errors import KafkaError
from mirror.relay.model.assignments import target_of
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range
from mirror.relay.progress.committed import read_each_progress, to_text
from mirror.relay.task.topic_rules import TopicRules

_log: Final = logging.getLogger(__name__)

_PROGRESS_TIMEOUT_MS: Final = 3_000
"""How long progress is waited for that is read for all partitions together. One whose coordinator is away for longer
must not delay the others: it reads its own when it begins."""

Selection = Callable[[str], str | None]
"""Returns the target topic of a source topic, by the flow's configuration; None if the flow does not copy it."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Ranges that may begin, and the rules of their target topics, but for those that are known."""

    ranges: Sequence[Range]
    rules: TopicRules


LoadTaken = Callable[[Sequence[Range], Collection[tuple[str, str]]], Taken]
"""Reads what ranges need to begin; the pairs of source and target topics are known. It waits. Raises MirrorError."""


def load_taken(
    target: Admin,
    policy: CopyPolicy,
    read_rules: Callable[[Sequence[Range]], TopicRules],
    read_selection: Callable[[], Selection] | None,
    ranges: Sequence[Range],
    known: Collection[tuple[str, str]],
) -> Taken:
    """Return those of ``ranges`` that the flow copies, with their progress, and the rules that are not ``known``.

    ``read_selection`` returns what the configuration selects now: a client that may write assignments must not have the
    flow copy other topics. None: all is copied.
    """
    if read_selection is not None:
        selection = read_selection()
        for one in ranges:
            if selection(one.topic) != one.target_topic:
                _log.warning(
                    "partition %d of topic %s is not copied into %s, although it was assigned to this task: the"
                    " configuration on this host does not select it; if its file is older than the driver's, bring it"
                    " up to date",
                    one.partition,
                    one.topic,
                    one.target_topic,
                )
        ranges = [one for one in ranges if selection(one.topic) == one.target_topic]
    new = [one for one in ranges if (one.topic, one.target_topic) not in known]
    return Taken(with_progress(target, policy, ranges), read_rules(new) if new else TopicRules({}, {}))


def with_progress(target: Admin, policy: CopyPolicy, ranges: Sequence[Range]) -> list[Range]:
    """Return ``ranges`` with the progress that each copy may begin with, read with few requests for thousands of them.

    What was planned for the first attempt of the task is older than what that has copied.
    """
    if policy.attempt:
        ranges = [replace(one, progress=None) for one in ranges]
    lacking = {target_of(one): one for one in ranges if one.progress is None and one.open_ended}
    if not lacking or not policy.exactly_once:
        return list(ranges)
    try:
        found = read_each_progress(target, next(iter(lacking.values())).flow, lacking, _PROGRESS_TIMEOUT_MS)
    except KafkaError:
        return list(ranges)
    texts = {tp: to_text(progress) for tp, progress in found.items() if progress.target is not None}
    return [replace(one, progress=one.progress or texts.get(target_of(one))) for one in ranges]
