"""The range planner's decisions, case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.config.models import FlowConfig
from mirror.errors import FlowError
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.model.way import Way
from mirror.relay.progress.committed import Progress
from mirror.spark.planning.range_planner import (
    NO_LEADER,
    SourcePartition,
    plan_range,
    select_topics,
    unmatched_patterns,
)

HERE = "cluster-a"


def flow(name: str = "f", source: str = "a", target: str = "b", **more: object) -> FlowConfig:
    """A flow that leaves the configurations of its topics alone once they are created."""
    given = {"name": name, "source": source, "target": target, "topics": ["orders"], "configs": "create", **more}
    return FlowConfig.model_validate(given)


def seen(
    *,
    earliest: int = 0,
    end: int = 100,
    first: int | None = None,
    until: int | None = None,
    leader: int = 1,
    topic_id: str = "t1",
) -> SourcePartition:
    return SourcePartition(
        topic="orders",
        target_topic="a.orders",
        partition=3,
        topic_id=topic_id,
        leader=leader,
        earliest=earliest,
        end=end,
        first=earliest if first is None else first,
        until=until,
    )


def at(offset: int, *, cluster: str = HERE, topic_id: str = "t1", time_ms: int = 0) -> Progress:
    return Progress(offset=offset, leader_epoch=0, source_cluster_id=cluster, topic_id=topic_id, time_ms=time_ms)


def test_selected_topics_are_sorted() -> None:
    wanted = flow(topics=["orders", "clicks-.*"])
    assert select_topics(wanted, ["orders-2", "orders", "clicks-b", "clicks-a", "__consumer_offsets"]) == [
        "clicks-a",
        "clicks-b",
        "orders",
    ]


def test_no_topic_is_an_error_that_names_patterns_and_count() -> None:
    with pytest.raises(FlowError, match=r"flow f: none of the 2 topics of cluster a matches topics = \['orders'\]"):
        select_topics(flow(), ["x", "y"])


@pytest.mark.parametrize(
    ("other", "topic"),
    [
        (flow("g", "c", topics=[".*"], naming="identity"), "a.orders"),
        (flow("g", "a", topics=["ord.*"]), "orders"),
        (flow("g", "c", topics=["orders"]), None),
        (flow("g", "c", topics=["clicks"], naming="identity"), None),
    ],
)
def test_another_flow_that_could_copy_into_a_topic_is_found(other: FlowConfig, topic: str | None) -> None:
    assert other.source_topic("a.orders") == topic


def copy(start: int, end: int, first: int = 0) -> Range:
    return Range(
        flow="f",
        topic="orders",
        target_topic="a.orders",
        partition=3,
        start=start,
        end=end,
        source_cluster_id=HERE,
        topic_id="t1",
        source_end=100,
        first=first,
    )


@pytest.mark.parametrize(
    ("partition", "progress", "start", "end"),
    [
        (seen(earliest=5), None, 5, 100),
        (seen(first=40), None, 40, 100),
        (seen(earliest=5), at(7), 7, 100),
        (seen(earliest=5), at(5), 5, 100),
        (seen(), at(7, topic_id=""), 7, 100),
        (seen(topic_id=""), at(7), 7, 100),
        (seen(), at(7, cluster=""), 7, 100),
        # "latest", first run: the task has nothing to copy, but the place to begin at to keep.
        (seen(first=100), None, 100, 100),
    ],
)
def test_a_range_covers_the_records_to_copy(
    partition: SourcePartition, progress: Progress | None, start: int, end: int
) -> None:
    expected = replace(copy(start, end, partition.first), topic_id=partition.topic_id, source_end=partition.end)
    assert plan_range(flow(), HERE, partition, progress) == expected


@pytest.mark.parametrize(
    ("partition", "progress", "offset"),
    [(seen(), at(100), 100), (seen(end=0), None, 0), (seen(earliest=9, end=9), None, 9)],
)
def test_a_partition_without_new_records_is_complete_without_a_task(
    partition: SourcePartition, progress: Progress | None, offset: int
) -> None:
    result = plan_range(flow(), HERE, partition, progress)
    assert isinstance(result, RangeResult)
    assert (result.outcome, result.start, result.end, result.error) == (Outcome.COMPLETE, offset, offset, None)


@pytest.mark.parametrize(
    ("partition", "progress", "offset", "words"),
    [
        (seen(earliest=10), at(7), 7, "retention: copied up to offset 7, but the source begins at 10: offsets 7 to 9 "),
        (seen(earliest=10), at(7), 7, 'set on-gap = "skip" to resume at offset 10'),
        (seen(end=6), at(7), 7, "truncated: copied up to offset 7, but the source's log was cut back to 6"),
        (seen(topic_id="t2"), at(7), 7, "recreated: copied up to offset 7 of a topic that was deleted and made again"),
        (
            seen(),
            at(7, cluster="other"),
            7,
            "other source: its progress on the target is from another source cluster (other, not",
        ),
        (seen(leader=NO_LEADER), at(7), 7, "no leader"),
        (seen(leader=NO_LEADER), None, 0, "no leader"),
    ],
)
def test_a_partition_that_cannot_be_copied_fails(
    partition: SourcePartition, progress: Progress | None, offset: int, words: str
) -> None:
    result = plan_range(flow(), HERE, partition, progress)
    assert isinstance(result, RangeResult)
    assert (result.outcome, result.start, result.end) == (Outcome.FAILED, offset, offset)
    assert words in str(result.error)


@pytest.mark.parametrize(
    ("partition", "progress", "start", "end"),
    [
        (seen(earliest=10), at(7), 10, 100),
        (seen(end=6), at(7), 6, 6),
        (seen(earliest=3, topic_id="t2"), at(7), 3, 100),
    ],
)
def test_a_flow_that_skips_gaps_resumes_after_the_gap(
    partition: SourcePartition, progress: Progress, start: int, end: int
) -> None:
    expected = replace(copy(start, end, partition.first), topic_id=partition.topic_id, source_end=partition.end)
    assert plan_range(flow(on_gap="skip"), HERE, partition, progress) == expected


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("end", [0, 4])
def test_topic_that_was_made_again_is_copied_from_its_start_though_it_ends_at_the_progress(
    end: int, *, follow: bool
) -> None:
    """Its task notices another topic also if there is nothing to read behind the progress."""
    partition = seen(end=end, topic_id="t2")
    planned = plan_range(flow(on_gap="skip"), HERE, partition, at(end), follow=follow)
    assert planned == replace(copy(0, end), topic_id="t2", source_end=end)


def test_what_is_gone_behind_a_lower_bound_may_be_copied() -> None:
    """Only the task that fences the partition finds out."""
    lower = replace(at(7), way=Way.SEQUENCES)
    for on_gap in ("fail", "skip"):
        planned = plan_range(flow(on_gap=on_gap), HERE, seen(earliest=10), lower)
        assert isinstance(planned, Range)
        assert (planned.start, planned.end) == (7, 100)
    for certain in (
        plan_range(flow(), HERE, seen(earliest=10), replace(lower, ended=True)),
        plan_range(flow(), HERE, seen(topic_id="t2"), lower),
        plan_range(flow(), HERE, seen(end=5), lower),
    ):
        assert isinstance(certain, RangeResult)
        assert certain.outcome is Outcome.FAILED


def test_another_source_is_never_skipped() -> None:
    result = plan_range(flow(on_gap="skip"), HERE, seen(earliest=10), at(7, cluster="other"))
    assert isinstance(result, RangeResult)
    assert result.outcome is Outcome.FAILED


@pytest.mark.parametrize(("time_ms", "renewed"), [(0, True), (999, True), (1000, False), (5000, False)])
def test_old_progress_of_an_idle_partition_is_committed_again(time_ms: int, renewed: bool) -> None:
    found = plan_range(flow(), HERE, seen(), at(100, time_ms=time_ms), recommit_before_ms=1000)
    assert found == copy(100, 100) if renewed else isinstance(found, RangeResult)


@pytest.mark.parametrize(
    ("partition", "progress", "start", "end"),
    [
        (seen(until=40), None, 0, 40),
        (seen(until=140), None, 0, 100),
        (seen(first=20, until=40), None, 20, 40),
        (seen(until=40), at(7), 7, 40),
        (seen(earliest=10, until=40), at(10), 10, 40),
    ],
)
def test_a_copy_ends_at_until_or_where_the_log_does(
    partition: SourcePartition, progress: Progress | None, start: int, end: int
) -> None:
    assert plan_range(flow(), HERE, partition, progress) == copy(start, end, partition.first)


@pytest.mark.parametrize(
    ("partition", "progress", "offset"),
    [
        (seen(until=40), at(40), 40),
        # A batch that begins before the end is copied whole.
        (seen(until=40), at(45), 45),
        # What the source forgot behind the flow's end was not wanted.
        (seen(earliest=60, until=40), at(45), 45),
        (seen(first=40, until=40), None, 40),
        (seen(first=70, until=40), None, 70),
        # The source has not come to `from` yet: there is no place to keep, it would be behind the log's end.
        (seen(first=101), None, 101),
    ],
)
def test_a_partition_that_is_at_its_end_is_complete(
    partition: SourcePartition, progress: Progress | None, offset: int
) -> None:
    result = plan_range(flow(), HERE, partition, progress)
    assert isinstance(result, RangeResult)
    assert (result.outcome, result.start, result.end, result.error) == (Outcome.COMPLETE, offset, offset, None)


@pytest.mark.parametrize(
    ("partition", "words"),
    [
        (seen(earliest=30, until=40), "retention: copied up to offset 7"),
        (seen(end=5, until=3), "truncated"),
        (seen(topic_id="t2", until=3), "recreated"),
    ],
)
def test_a_gap_before_the_end_still_fails(partition: SourcePartition, words: str) -> None:
    result = plan_range(flow(), HERE, partition, at(7))
    assert isinstance(result, RangeResult)
    assert result.outcome is Outcome.FAILED
    assert words in str(result.error)


def test_old_progress_at_the_flow_s_end_is_committed_again() -> None:
    assert plan_range(flow(), HERE, seen(until=40), at(40), recommit_before_ms=1) == copy(40, 40)


def test_each_pattern_that_matches_nothing_is_named() -> None:
    wanted = flow(topics=["orders", "clicks", "o.*"])
    (line,) = unmatched_patterns(wanted, ["orders"], {})
    assert line.startswith("topics = 'clicks' matches no topic")
    (line,) = unmatched_patterns(wanted, ["orders"], {"clicks": "by its name it came from b", "x": "y"})
    assert line == (
        "topics = 'clicks' matches only topics that are left out (clicks: by its name it came from b); correct it"
    )
