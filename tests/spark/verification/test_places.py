"""Which part of each partition is compared, from what both clusters have."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from mirror.exit_status import DONE, FAILED
from mirror.relay.batches.topic_config import TopicConfig
from mirror.relay.progress.committed import Beginning, Progress
from mirror.relay.progress.target_log import TargetMark
from mirror.spark.planning.flow_observation import TargetLog
from mirror.spark.planning.range_planner import NO_LEADER, SourcePartition
from mirror.spark.verification.places import (
    Place,
    Start,
    TargetPlace,
    Topics,
    decide,
    decide_proved,
    decide_target_only,
)
from mirror.verify.partition_results import PartitionResult, VerifyRange, exit_status
from mirror.verify.proof import ProvedRange, proved_ranges
from mirror.verify.values import Absent, Bounds, Difference, Kind, Named, Uncompared, Verdict

_SOURCE = SourcePartition(
    topic="orders",
    target_topic="a.orders",
    partition=3,
    topic_id="s",
    leader=1,
    earliest=0,
    end=130,
    first=0,
)
_TARGET = TargetLog(start=0, end=140, high_watermark=140, topic_id="t")
_PROGRESS = Progress(
    offset=100,
    leader_epoch=0,
    source_cluster_id="a",
    topic_id="s",
    target=TargetMark(topic_id="t", end=110),
    beginning=Beginning(0, 0),
    series=1_000,
)
_CONFIG = TopicConfig.of({})
_PLACE = Place(
    source=_SOURCE,
    target=_TARGET,
    progress=_PROGRESS,
    topics=Topics(source=_CONFIG, target=_CONFIG),
    source_cluster_id="a",
)
_PROVED = ProvedRange(
    topic="orders",
    target_topic="a.orders",
    partition=3,
    source_topic_id="s",
    target_topic_id="t",
    source_start=0,
    source_end=60,
    target_start=0,
    target_end=66,
    records=60,
    bytes=600,
    sha256="00",
    named={},
    not_compared=[],
)


def _range(place: Place) -> VerifyRange:
    decision = decide(place)
    assert isinstance(decision, VerifyRange), decision
    return decision


def _result(place: Place) -> PartitionResult:
    decision = decide(place)
    assert isinstance(decision, PartitionResult), decision
    return decision


def test_comparison_extends_from_where_the_copy_began_to_its_progress() -> None:
    found = _range(_PLACE)
    assert found.bounds == Bounds(source_start=0, source_end=100, target_start=0, target_end=140)
    assert (found.source_limit, found.first_copy_ms, found.notes) == (130, 1_000, ())
    began = replace(_PLACE, progress=replace(_PROGRESS, beginning=Beginning(40, 7)))
    assert _range(began).bounds == Bounds(source_start=40, source_end=100, target_start=7, target_end=140)


def test_what_a_side_has_deleted_is_not_expected() -> None:
    source = replace(_PLACE, source=replace(_SOURCE, earliest=30))
    assert _range(source).bounds == Bounds(
        source_start=30, source_end=100, target_start=0, target_end=140, source_trimmed=True
    )
    target = replace(_PLACE, target=replace(_TARGET, start=20))
    assert _range(target).bounds == Bounds(
        source_start=0, source_end=100, target_start=20, target_end=140, target_trimmed=True
    )


def test_source_that_has_deleted_what_was_not_copied_yet_is_no_error() -> None:
    found = _range(replace(_PLACE, source=replace(_SOURCE, earliest=110)))
    assert (found.bounds.source_start, found.bounds.source_end, found.bounds.source_trimmed) == (110, 100, True)


def test_beginning_that_is_not_known_may_be_anywhere_on_both_sides() -> None:
    bounds = _range(replace(_PLACE, progress=replace(_PROGRESS, beginning=None))).bounds
    assert (bounds.source_trimmed, bounds.target_trimmed) == (True, True)


def test_records_behind_an_open_transaction_are_withheld() -> None:
    assert _range(replace(_PLACE, target=replace(_TARGET, high_watermark=141))).bounds.withheld


def test_comparison_begins_behind_what_is_proved() -> None:
    place = replace(_PLACE, start=Start(proved=_PROVED))
    assert _range(place).bounds == Bounds(source_start=60, source_end=100, target_start=66, target_end=140)


def test_nothing_is_compared_if_nothing_came_behind_what_is_proved() -> None:
    proved = replace(_PROVED, source_end=100, target_end=140)
    result = _result(replace(_PLACE, start=Start(proved=proved)))
    assert (result.outcome, result.proved) == ("equal", True)
    assert result.verdict is not None
    assert (result.verdict.source_end, result.verdict.target_end) == (100, 140)


@pytest.mark.parametrize("changed", [{"source_topic_id": "old"}, {"target_topic_id": "old"}])
def test_proof_of_a_topic_that_was_made_again_is_not_continued(changed: dict[str, str]) -> None:
    found = _range(replace(_PLACE, start=Start(proved=replace(_PROVED, **changed))))  # type: ignore[arg-type] # ids
    assert found.bounds.source_start == 0
    assert "made again since" in found.notes[0]


def test_comparison_begins_at_an_offset_wherever_that_is_on_the_target() -> None:
    bounds = _range(replace(_PLACE, start=Start(source_offset=50))).bounds
    assert (bounds.source_start, bounds.target_start, bounds.source_trimmed) == (50, 0, True)
    beyond = _result(replace(_PLACE, start=Start(source_offset=100)))
    assert beyond.outcome == "equal"


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (replace(_PLACE, source=replace(_SOURCE, leader=NO_LEADER)), "no leader"),
        (replace(_PLACE, source=replace(_SOURCE, leader=NO_LEADER, error="silent")), "silent"),
        (replace(_PLACE, target=TargetLog(error="it has no leader")), "it has no leader"),
        (replace(_PLACE, source_cluster_id="other"), "another source cluster"),
        (replace(_PLACE, source=replace(_SOURCE, topic_id="new")), "recreated"),
        (replace(_PLACE, source=replace(_SOURCE, end=90)), "truncated"),
        (replace(_PLACE, progress=None), "no progress"),
    ],
)
def test_partition_that_cannot_be_compared_says_why(place: Place, reason: str) -> None:
    result = _result(place)
    assert result.outcome == "unknown"
    assert reason in result.error


@pytest.mark.parametrize("target", [{"target": TargetLog()}, {"has_others": True}], ids=["no records", "of others"])
def test_nothing_copied_yet_is_not_compared_unless_the_source_is_empty(target: dict[str, Any]) -> None:
    place = replace(_PLACE, progress=None, source=replace(_SOURCE, earliest=20), **target)
    nothing = _result(place)
    assert (nothing.outcome, nothing.error) == ("not compared", "")
    assert nothing.verdict is not None
    assert nothing.verdict.uncompared == [Uncompared("source", 20, 130, "nothing is copied yet")]
    assert exit_status([nothing]) == FAILED
    assert not proved_ranges([nothing])
    assert _result(replace(place, source=replace(_SOURCE, earliest=130))).outcome == "equal"


def test_target_that_was_made_again_is_compared_from_its_beginning_and_said() -> None:
    progress = replace(_PROGRESS, beginning=Beginning(0, 7))
    found = _range(replace(_PLACE, progress=progress, target=replace(_TARGET, topic_id="new")))
    assert found.bounds.target_start == 0
    assert "made again since it was copied" in found.notes[0]
    gone = _range(replace(_PLACE, target=TargetLog(exists=False)))
    assert gone.bounds == Bounds(source_start=0, source_end=100, target_start=0, target_end=0)
    assert gone.notes == ("the target topic does not exist",)


def test_configurations_say_what_may_differ() -> None:
    topics = Topics(
        source=TopicConfig.of({"cleanup.policy": "compact,delete"}),
        target=TopicConfig.of(
            {"cleanup.policy": "compact", "message.timestamp.before.max.ms": "5", "max.message.bytes": "7"}
        ),
    )
    facts = _range(replace(_PLACE, topics=topics)).facts
    assert (facts.source_compacted, facts.target_compacted, facts.before_ms, facts.max_message_bytes) == (
        True,
        True,
        5,
        7,
    )


def test_proved_range_is_compared_again_as_it_was() -> None:
    found = decide_proved(_PLACE, _PROVED)
    assert isinstance(found, VerifyRange)
    assert found.bounds == Bounds(source_start=0, source_end=60, target_start=0, target_end=66)
    assert found.expected_digest == "00"


def test_what_is_left_of_a_proved_range_is_compared_without_its_hash() -> None:
    found = decide_proved(replace(_PLACE, source=replace(_SOURCE, earliest=10)), _PROVED)
    assert isinstance(found, VerifyRange)
    assert (found.bounds.source_start, found.bounds.source_trimmed, found.expected_digest) == (10, True, "")
    assert "has deleted the beginning" in found.notes[0]
    gone = decide_proved(replace(_PLACE, source=replace(_SOURCE, earliest=60)), _PROVED)
    assert isinstance(gone, PartitionResult)
    assert gone.outcome == "unknown"
    other = decide_proved(replace(_PLACE, target=replace(_TARGET, topic_id="new")), _PROVED)
    assert isinstance(other, PartitionResult)
    assert "made again" in other.error


_BEHIND = Uncompared("source", 100, 130, "they are not copied yet")


@pytest.mark.parametrize(
    ("place", "outside"),
    [
        (replace(_PLACE, progress=replace(_PROGRESS, offset=130)), ()),
        (_PLACE, (_BEHIND,)),
        (replace(_PLACE, source=replace(_SOURCE, earliest=120)), (replace(_BEHIND, start=120),)),
        (
            replace(_PLACE, progress=replace(_PROGRESS, beginning=Beginning(40, 7))),
            (Uncompared("source", 0, 40, "the copy has begun behind them"), _BEHIND),
        ),
        (
            replace(_PLACE, start=Start(proved=_PROVED)),
            (Uncompared("source", 0, 60, "they were proved before"), _BEHIND),
        ),
        (
            replace(_PLACE, start=Start(source_offset=110)),
            (Uncompared("source", 0, 100, "--from leaves them out"), _BEHIND),
        ),
        (
            replace(_PLACE, source=replace(_SOURCE, until=110)),
            (replace(_BEHIND, end=110), Uncompared("source", 110, 130, "the flow ends in front of them")),
        ),
        (
            replace(_PLACE, source=replace(_SOURCE, until=90, earliest=110)),
            (Uncompared("source", 110, 130, "the flow ends in front of them"),),
        ),
        (
            replace(_PLACE, source=replace(_SOURCE, high_watermark=133)),
            (
                _BEHIND,
                Uncompared("source", 130, 133, "they are newer, or an open transaction on the source withholds them"),
            ),
        ),
    ],
    ids=["none", "behind", "deleted", "late start", "proved", "from", "until", "until, deleted", "open transaction"],
)
def test_records_of_the_source_outside_the_comparison_are_listed(place: Place, outside: tuple[Uncompared, ...]) -> None:
    decision = decide(place)
    assert decision.outside == outside
    verdict = Verdict(source_start=0, target_start=0, source_end=100, target_end=140)
    result = decision if isinstance(decision, PartitionResult) else PartitionResult.of(decision, verdict)
    assert (result.outcome, result.incomplete) == ("equal", [str(one) for one in outside])
    assert (exit_status([result]), exit_status([result], strict=True)) == (DONE, 3 if outside else DONE)


def test_check_of_a_proof_lists_what_came_behind_it() -> None:
    found = decide_proved(_PLACE, _PROVED)
    assert found.outside == (Uncompared("source", 60, 130, "--check compares only what the proof says"),)


@pytest.mark.parametrize(
    ("verdict", "error", "reasons"),
    [
        (None, "no leader", ["no leader"]),
        (None, "", ["nothing was compared"]),
        ({"differences": [Difference(Kind.MISSING, 3, 3, 2)]}, "", ["2 missing"]),
        (
            {"uncompared": [Uncompared("source", 0, 5, "gone")]},
            "",
            ["source 0 to 4 not compared: gone"],
        ),
        ({"uncompared": [Uncompared("target", 0, 5, "older")]}, "", []),
        (
            {"uncompared": [Uncompared("target", 0, 5, "unread")], "complete": False},
            "",
            ["target 0 to 4 not compared: unread"],
        ),
        ({"named": Counter({Named.TOO_LARGE: 2})}, "", [f"2 {Named.TOO_LARGE}"]),
        ({"named": Counter({Named.NOT_LOCAL: 3})}, "", []),
        ({"absent": Absent(3, 9, 1_200)}, "", [str(Absent(3, 9, 1_200))]),
        ({"named": Counter({Named.DROPPED: 2, Named.TARGET_COMPACTED: 1})}, "", []),
    ],
)
def test_partition_is_complete_only_if_the_target_has_each_record_of_the_source(
    verdict: dict[str, Any] | None, error: str, reasons: list[str]
) -> None:
    made = None if verdict is None else Verdict(source_start=0, target_start=0, source_end=9, target_end=9, **verdict)
    result = PartitionResult(topic="t", target_topic="t", partition=0, verdict=made, error=error)
    assert result.incomplete == reasons
    record = result.to_record()
    assert (record["complete"], record["incomplete"]) == (not reasons, reasons)
    assert exit_status([result], strict=True) == (FAILED if error else 3 if reasons else DONE)


def test_whatever_a_partition_has_that_only_the_target_has_is_compared() -> None:
    place = TargetPlace(
        topic="orders", target_topic="a.orders", partition=7, source_topic_id="s", target=_TARGET, topics=_PLACE.topics
    )
    found = decide_target_only(place)
    assert isinstance(found, VerifyRange)
    assert found.bounds == Bounds(source_start=0, source_end=0, target_start=0, target_end=140)
    assert (found.partition, found.source_limit) == (7, 0)
    empty = decide_target_only(replace(place, target=replace(_TARGET, start=140)))
    assert isinstance(empty, PartitionResult)
    assert (empty.outcome, empty.incomplete) == ("equal", [])
    assert empty.notes == ["only the target has this partition"]
    silent = decide_target_only(replace(place, target=TargetLog(error="no leader")))
    assert isinstance(silent, PartitionResult)
    assert (silent.outcome, silent.error) == ("unknown", "the target partition does not answer: no leader")
