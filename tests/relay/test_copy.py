"""One task's copies together: who is asked for what, and whose progress was kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any, cast

import pytest

from mirror.client import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.errors import ConnectionFailed, KafkaError, KafkaTimeout
from mirror.producer.batches import RecordMetadata
from mirror.relay.copy import _Task
from mirror.relay.progress import group_of
from mirror.relay.ranges import Outcome, Range, RangeResult
from mirror.wire.records import Batch
from tests.fakes.clock import FakeClock
from tests.fakes.record_batches import batch, build

PARTITIONS = 20
STALL_MS = 1_000
COMMIT_MS = 100


class Source:
    """A consumer over a log per partition; a partition without one gives nothing. Each poll takes its time."""

    def __init__(self, clock: FakeClock, logs: dict[int, list[Batch]]) -> None:
        self.clock = clock
        self.logs = logs
        self.asked = Counter[int]()

    def assign(self, tps: Collection[TopicPartition]) -> None:
        assert len(tps) == PARTITIONS

    def seek(self, tp: TopicPartition, at: OffsetAndMetadata) -> None:
        assert (tp.topic, at.offset) == ("t", 0)

    def pause(self, tps: Collection[TopicPartition]) -> None: ...

    def resume(self, tps: Collection[TopicPartition]) -> None: ...

    def poll(self, timeout_ms: int) -> list[Fetched]:
        self.clock.advance(timeout_ms)
        for partition, log in self.logs.items():
            if log:
                one = log.pop(0)
                return [
                    Fetched(
                        tp=TopicPartition("t", partition),
                        offset=one.base_offset,
                        next_offset=one.next_offset,
                        batches=[one],
                    )
                ]
        return []

    def last_error(self, tp: TopicPartition) -> KafkaError:
        self.asked[tp.partition] += 1
        return ConnectionFailed("no route")


class Target:
    """Producer and admin: acknowledges all at once, and refuses a group's commits as often as ``refusals`` says."""

    def __init__(self) -> None:
        self.refusals = Counter[str]()
        self.kept: dict[TopicPartition, int] = {}

    def send_batch(self, tp: TopicPartition, one: Batch, *, block: bool, chained: bool) -> Future[RecordMetadata]:
        assert chained, "nothing after a hole"
        assert not block, "the thread that copies one partition copies the others, too"
        future: Future[RecordMetadata] = Future()
        future.set_result(RecordMetadata(tp, one.base_offset))
        return future

    def describe_topic_configs(self, names: Collection[str]) -> dict[str, dict[str, str]]:
        return {name: {} for name in names}

    def group_offsets(self, group: str, tps: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        assert group
        assert tps
        return {}

    def commit_group_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        # The first one is where the copies begin.
        if all(tp in self.kept for tp in offsets) and self.refusals[group] > 0:
            self.refusals[group] -= 1
            raise KafkaTimeout("the coordinator does not answer")
        self.kept |= {tp: each.offset for tp, each in offsets.items()}


@pytest.fixture
def target() -> Target:
    return Target()


def _copy(target: Target, logs: dict[int, list[Batch]]) -> tuple[list[RangeResult], Source]:
    clock = FakeClock()
    source = Source(clock, logs)
    ranges = [
        Range(
            flow="f",
            topic="t",
            target_topic="a.t",
            partition=partition,
            start=0,
            end=2,
            source_cluster_id="a",
            topic_id="id",
        )
        for partition in range(PARTITIONS)
    ]
    # Parts of the real faces, as far as a task uses them.
    both = cast("Any", target)
    task = _Task(ranges, cast("Admin", both), cast("Consumer", source), cast("Producer", both), clock)
    task.begin(1_000_000)
    task.run(COMMIT_MS, STALL_MS)
    return task.results(), source


def _logs(partitions: Collection[int] = range(PARTITIONS)) -> dict[int, list[Batch]]:
    return {p: [batch(build((b"1",), base_offset=n)) for n in range(2)] for p in partitions}


def _busiest_group() -> tuple[str, set[int]]:
    """A group of several partitions, and those."""
    groups = [group_of("f", TopicPartition("a.t", partition)) for partition in range(PARTITIONS)]
    ((group, count),) = Counter(groups).most_common(1)
    assert 1 < count < PARTITIONS
    return group, {partition for partition, each in enumerate(groups) if each == group}


def test_why_nothing_comes_is_asked_once_when_the_time_is_over(target: Target) -> None:
    silent = {3, 8, 13}
    results, source = _copy(target, _logs(set(range(PARTITIONS)) - silent))
    assert source.asked == dict.fromkeys(silent, 1)
    assert {each.partition for each in results if each.outcome is Outcome.FAILED} == silent
    assert results[3].error == f"t-3: nothing came from the source for {STALL_MS} ms: no route"


def test_only_what_was_not_kept_fails(target: Target) -> None:
    group, partitions = _busiest_group()
    target.refusals[group] = 10**6
    results, _ = _copy(target, _logs())
    for each in results:
        if each.partition in partitions:
            assert (each.outcome, each.end) == (Outcome.FAILED, 0)
            assert each.error == "progress was not kept: the coordinator does not answer"
        else:
            assert (each.outcome, each.end, each.error) == (Outcome.COMPLETE, 2, None)


def test_a_commit_that_went_wrong_on_the_way_is_made_good_later(target: Target) -> None:
    group, _ = _busiest_group()
    target.refusals[group] = 1
    results, _ = _copy(target, _logs())
    assert target.refusals[group] == 0
    assert {(each.outcome, each.end) for each in results} == {(Outcome.COMPLETE, 2)}


def test_who_may_not_keep_progress_copies_nothing_and_its_neighbours_do(target: Target) -> None:
    group, partitions = _busiest_group()
    target.refusals[group] = 1
    target.kept = {TopicPartition("a.t", partition): 0 for partition in partitions}
    results, _ = _copy(target, _logs())
    for each in results:
        outcome = Outcome.FAILED if each.partition in partitions else Outcome.COMPLETE
        assert (each.outcome, each.records) == (outcome, 2 * (outcome is Outcome.COMPLETE))
    assert results[min(partitions)].error == "the coordinator does not answer"
