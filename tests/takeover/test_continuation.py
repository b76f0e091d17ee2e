"""What is decided before anything is read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.cluster.types import TopicPartition
from mirror.relay.model.way import Way
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.target_log import TargetMark
from mirror.takeover.continuation import Continuation, Facts, Reading, SourceLog, TakeoverOutcome, TargetLog, examine
from mirror.takeover.matching import Pair

FACTS = Facts(
    source=TopicPartition("t", 0),
    target=TopicPartition("a.t", 0),
    stored=9,
    source_log=SourceLog(first=0, stable_end=20, end=20, leader_epoch=1, topic_id="source"),
    target_log=TargetLog(first=0, end=30, leader_epoch=1, topic_id="target"),
)
OF_TAKEOVER = Progress(
    offset=12,
    leader_epoch=1,
    source_cluster_id="paris",
    topic_id="source",
    target=TargetMark(topic_id="target", end=30, leader_epoch=1),
)


def _outcome(facts: Facts) -> TakeoverOutcome | None:
    decision = examine(facts)
    return decision.outcome if isinstance(decision, Continuation) else None


@pytest.mark.parametrize(
    ("progress", "outcome"),
    [
        (OF_TAKEOVER, None),
        # Its first attempt may have appended before it was killed: nothing says so yet.
        (replace(OF_TAKEOVER, way=Way.SEQUENCES, producer_id=5, attempt=0), TakeoverOutcome.COPIED_BY_FLOW),
        (replace(OF_TAKEOVER, target=replace(OF_TAKEOVER.target, producer_id=5)), TakeoverOutcome.COPIED_BY_FLOW),  # type: ignore[type-var]
        (replace(OF_TAKEOVER, target=None), TakeoverOutcome.COPIED_BY_FLOW),
    ],
)
def test_only_the_progress_of_a_takeover_is_replaced(progress: Progress, outcome: TakeoverOutcome | None) -> None:
    assert _outcome(replace(FACTS, progress=progress)) == outcome


def test_progress_that_mirrormaker_has_overtaken_is_replaced() -> None:
    progress = replace(OF_TAKEOVER, way=Way.SEQUENCES)
    assert _outcome(replace(FACTS, progress=progress, stored=11)) is TakeoverOutcome.COPIED_BY_FLOW
    assert _outcome(replace(FACTS, progress=progress, stored=12)) is None


@pytest.mark.parametrize(
    ("pairs", "reading"),
    [
        ((), Reading(0, None)),
        ((Pair(3, 13), Pair(7, 17), Pair(12, 22)), Reading(7, 17, (Pair(7, 17), Pair(3, 13)))),
        ((Pair(12, 22),), Reading(0, None)),
        # Behind the target's end: of another log.
        ((Pair(7, 30),), Reading(0, None)),
    ],
)
def test_logs_are_read_behind_the_last_offset_sync_that_helps(pairs: tuple[Pair, ...], reading: Reading) -> None:
    assert examine(replace(FACTS, pairs=pairs)) == reading


def test_what_the_target_lacks_is_not_guessed() -> None:
    assert _outcome(replace(FACTS, target_log=None)) is TakeoverOutcome.UNSETTLED
    assert _outcome(replace(FACTS, target_log=None, stored=None)) is TakeoverOutcome.NOTHING_COPIED
    assert _outcome(replace(FACTS, stored=20)) is TakeoverOutcome.UNSETTLED
    assert _outcome(replace(FACTS, stored=19)) is None
