"""What became of a cluster that has come back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.cluster.types import EpochEndOffset
from mirror.switch.failback.inspection import LogFacts, TopicFacts, Verdict, inspect, inspect_topic

SAME = LogFacts(start=0, end=12, leader_epoch=3, epoch_end=EpochEndOffset(3, 12))


def facts(
    *logs: LogFacts | None, copied: tuple[int, ...] = (10,), known: str = "id", live: str | None = "id"
) -> TopicFacts:
    return TopicFacts(copied=copied, known_id=known, live_id=live, logs=logs)


def test_a_log_that_reaches_the_divergence_is_the_same_and_its_rest_is_the_tail() -> None:
    found = inspect_topic("t", facts(SAME))
    assert (found.verdict, found.tail) == (Verdict.SAME, 2)
    assert found.partitions[0].deleted == 0


def test_a_log_that_ends_before_the_divergence_is_truncated() -> None:
    found = inspect_topic("t", facts(LogFacts(start=0, end=9)))
    assert (found.verdict, found.tail) == (Verdict.TRUNCATED, 0)
    assert found.why == "it ends at offset 9, and was copied up to 10"


@pytest.mark.parametrize("end", [EpochEndOffset(3, 9), EpochEndOffset(2, 4), EpochEndOffset(-1, -1)])
def test_an_epoch_that_ends_before_the_divergence_is_truncated(end: EpochEndOffset) -> None:
    found = inspect_topic("t", facts(LogFacts(start=0, end=40, leader_epoch=3, epoch_end=end)))
    assert found.verdict is Verdict.TRUNCATED
    assert "leader epoch" in found.why


def test_leader_epochs_that_retention_has_deleted_show_nothing() -> None:
    log = LogFacts(start=11, end=40, leader_epoch=3, epoch_end=EpochEndOffset(-1, -1))
    found = inspect_topic("t", facts(log))
    assert (found.verdict, found.tail, found.partitions[0].deleted) == (Verdict.SAME, 29, 1)


@pytest.mark.parametrize(("known", "live"), [("", "id"), ("id", ""), ("id", "id")])
def test_a_topic_without_a_known_id_is_compared_by_its_log(known: str, live: str) -> None:
    assert inspect_topic("t", facts(SAME, known=known, live=live)).verdict is Verdict.SAME


def test_a_topic_that_is_gone_or_was_made_again() -> None:
    assert inspect_topic("t", facts(live=None)).verdict is Verdict.MISSING
    again = inspect_topic("t", facts(SAME, live="other"))
    assert (again.verdict, again.why) == (Verdict.REBUILT, "its topic id is other, and was id when it was copied")


def test_all_of_a_topic_that_was_made_again_is_tail() -> None:
    again = inspect_topic("t", facts(SAME, None, live="other", copied=(10, 3)))
    assert [(one.verdict, one.tail_start, one.tail) for one in again.partitions] == [
        (Verdict.REBUILT, 0, 12),
        (Verdict.UNKNOWN, -1, 0),
    ]


def test_a_topic_that_a_failback_has_rebuilt_is_continued_until_it_is_made_again() -> None:
    rebuilt = inspect_topic("t", replace(facts(SAME, live="new"), rebuilt_id="new"))
    assert (rebuilt.verdict, rebuilt.tail, rebuilt.partitions) == (Verdict.SAME, 0, ())
    assert inspect_topic("t", replace(facts(SAME, live="id"), rebuilt_id="new")).verdict is Verdict.REBUILT
    assert inspect_topic("t", replace(facts(live=None), rebuilt_id="new")).verdict is Verdict.MISSING


def test_partitions_that_are_gone_or_cannot_be_read() -> None:
    assert inspect_topic("t", facts(SAME, copied=(10, 5))).verdict is Verdict.REBUILT
    assert inspect_topic("t", facts(SAME, None, copied=(10, 5))).verdict is Verdict.UNKNOWN


def test_a_partition_of_which_nothing_was_copied_is_all_tail() -> None:
    found = inspect_topic("t", facts(LogFacts(start=4, end=9), copied=(-1,)))
    assert (found.verdict, found.tail, found.partitions[0].deleted) == (Verdict.SAME, 5, 0)


def test_a_cluster_is_sound_if_it_is_the_same_with_all_its_topics() -> None:
    assert inspect("c", "c", {"t": facts(SAME)}).is_sound
    assert inspect("c", "", {"t": facts(SAME)}).is_sound
    assert not inspect("d", "c", {"t": facts(SAME)}).is_sound
    broken = inspect("c", "c", {"t": facts(SAME), "u": facts(live=None)})
    assert not broken.is_sound
    assert broken.rebuilt == ("u",)
