"""Ranges that are added to a running epoch: each is copied by one task, in this epoch, once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirror.client import Admin, OffsetAndMetadata, TopicPartition
from mirror.errors import KafkaTimeout
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.futures import done, failed
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import OPEN_END, Outcome, Range
from mirror.relay.progress.control import RunControl
from mirror.relay.task.added_ranges import AddedRange, added_ranges
from mirror.relay.task.additions import Addition, Additions, load_additions
from mirror.relay.task.topic_rules import TopicRules
from tests.relay.copy_harness import made
from tests.relay.task_harness import TaskHarness

RANGE = Range(
    flow="f",
    topic="new",
    target_topic="a.new",
    partition=3,
    start=5,
    end=OPEN_END,
    source_cluster_id="paris",
    topic_id="the-id",
    source_end=9,
    source_epoch=2,
    first=4,
)
ADDED = AddedRange("run-1", 7, 1, RANGE)
TARGET = TopicPartition("a.new", 3)
CONTROL = RunControl(run="run-1", host="h", since_ms=5, epoch=7, added=1)
RULES = TopicRules({"paris.t": TargetLimits()}, {})


selected = {"new": "a.new"}.get


@pytest.mark.parametrize("added", [RANGE, replace(RANGE, first=None, source_epoch=None)])
def test_a_range_survives_a_round_trip(added: Range) -> None:
    offsets = {TARGET: replace(ADDED, range=added).to_offset()}
    assert added_ranges(offsets, "f", "run-1", 7, 1, selected) == [added]


@pytest.mark.parametrize(("run", "epoch", "task"), [("run-2", 7, 1), ("run-1", 6, 1), ("run-1", 8, 1), ("run-1", 7, 0)])
def test_other_runs_epochs_and_tasks_are_left_out(run: str, epoch: int, task: int) -> None:
    assert added_ranges({TARGET: ADDED.to_offset()}, "f", run, epoch, task, selected) == []


@pytest.mark.parametrize(
    "metadata", ["", "x", "[]", '{"run":"run-1","task":1}', '{"run":"run-1","task":1,"topic":"t"}']
)
def test_what_other_programs_have_committed_is_left_out(metadata: str) -> None:
    offsets = {TARGET: OffsetAndMetadata(7, None, metadata), TopicPartition("p", 0): OffsetAndMetadata(7, None, "{}")}
    assert added_ranges(offsets, "f", "run-1", 7, 1, selected) == []


@pytest.mark.parametrize(
    ("target", "topic"),
    [("attackers-topic", "payroll"), ("a.payroll", "payroll"), ("attackers-topic", "new"), ("a.new", "payroll")],
)
def test_what_the_configuration_does_not_select_is_left_out(
    target: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may commit to the control group could have any topic of the source copied into any of the target."""
    forged = replace(RANGE, topic=topic, target_topic=target)
    offsets = {TopicPartition(target, 3): AddedRange("run-1", 7, 1, forged).to_offset()}
    assert added_ranges(offsets, "f", "run-1", 7, 1, selected) == []
    policy = CopyPolicy(run="run-1", epoch=7, task=1)
    admin = cast("Admin", SimpleNamespace(group_offsets=lambda _: offsets))
    assert load_additions(admin, "f", policy, lambda _: RULES, lambda: selected, []).ranges == []
    (line,) = caplog.messages
    assert line.startswith(f"new partition 3 of topic {topic} is not copied into {target} before the next epoch")


def test_the_longest_name_fits_into_what_brokers_store() -> None:
    """They refuse metadata of more than 4,096 bytes (offset.metadata.max.bytes)."""
    longest = replace(RANGE, topic="x" * 249, start=2**62, first=2**62, source_end=2**62, source_cluster_id="c" * 36)
    assert len(replace(ADDED, range=longest, run="r" * 60).to_offset().metadata) < 1_000


class Following:
    """Additions whose reads the test answers."""

    def __init__(self) -> None:
        self.reads: list[Future[Addition]] = []
        self.known: list[Collection[TopicPartition]] = []
        self.additions = Additions(CopyPolicy(run="run-1", epoch=7, task=1), self.load, self.submit, lambda: None)

    def load(self, known: Collection[TopicPartition]) -> Addition:
        self.known.append(known)
        return Addition([], RULES)

    def submit(self, load: Callable[[], Addition]) -> Future[Any]:
        load()
        self.reads.append(Future())
        return self.reads[-1]

    def take(self, control: RunControl | None = None) -> Addition | None:
        if control is not None:
            self.additions.follow(done(control))
        return self.additions.take(lambda: [TARGET])


def test_offsets_are_read_once_for_each_addition() -> None:
    one = Following()
    assert one.take(replace(CONTROL, added=0)) is None
    assert one.reads == []
    assert one.take(CONTROL) is None
    assert one.known == [frozenset({TARGET})]
    assert one.take(CONTROL) is None, "it is being read"
    addition = Addition([RANGE], RULES)
    one.reads[0].set_result(addition)
    assert one.take() == addition
    assert [one.take(CONTROL), one.take(CONTROL)] == [None, None]
    assert len(one.reads) == 1, "nothing was added since"
    one.take(replace(CONTROL, added=2))
    assert len(one.reads) == 2


def test_a_read_that_fails_is_repeated_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    one = Following()
    for reads, reason in enumerate(["no answer", "no answer", "too slow"]):
        one.take(CONTROL)
        one.reads[reads].set_exception(KafkaTimeout(reason))
        assert one.take(CONTROL) is None
    one.take()
    assert len(one.reads) == 4
    assert [line.rpartition(": ")[2] for line in caplog.messages] == ["no answer", "too slow"]


def test_additions_of_another_run_and_unread_records_are_ignored() -> None:
    one = Following()
    one.take(replace(CONTROL, run="run-2"))
    one.additions.follow(failed(KafkaTimeout("no answer")))
    one.take()
    assert one.reads == []


# --- a task


class Stream:
    """A task that follows two partitions; the third one, with two records, is added to its epoch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, added_ms: int = 3_000) -> None:
        self.harness = harness = TaskHarness(2, monkeypatch)
        harness.end = OPEN_END
        harness.source.logs[2] = [made(0), made(1)]
        self.began_ms = harness.clock.now()
        self.added_ms = self.began_ms + added_ms
        self.loads = 0
        self.refused: set[int] = set()
        harness.load_additions = self.load
        harness.lookups.run_control = self.control  # type: ignore[method-assign]

    def control(self) -> Future[RunControl | None]:
        added = int(self.harness.clock.now() >= self.added_ms)
        return done(replace(CONTROL, added=added))

    def load(self, known: Collection[TopicPartition]) -> Addition:
        self.loads += 1
        if self.loads in self.refused:
            raise KafkaTimeout("no answer")
        added = self.harness.range_of(2)
        return Addition([] if TopicPartition("paris.t", 2) in known else [added], RULES)

    def copy(self, seconds: int = 10, **policy: Any) -> dict[int, tuple[Outcome, int]]:
        until_ms = self.harness.clock.unix_ms() + seconds * 1_000
        results = self.harness.copy(until_ms=until_ms, run="run-1", epoch=7, **policy)
        return {result.partition: (result.outcome, result.records) for result in results}


def test_a_task_copies_what_is_added_to_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(monkeypatch)
    assert stream.copy() == dict.fromkeys(range(3), (Outcome.COMPLETE, 2))
    assert stream.loads == 1
    assert stream.harness.lookups.added == [TopicPartition("paris.t", 2)], "its progress is read, too"
    committed = {group: at for at, group in reversed(stream.harness.target.commit_order)}
    assert len(stream.harness.target.sent[2]) == 2
    assert stream.harness.target.committed[2] == 2
    assert all(at - stream.added_ms < 2_000 for at in committed.values()), "within the second until the record is read"


def test_a_task_of_another_attempt_reads_what_was_added_before_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Stream(monkeypatch, added_ms=0).copy()[2] == (Outcome.COMPLETE, 2)


def test_nothing_begins_after_the_epochs_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the lease it would fence the next epoch's attempt, whose plan has the partition."""
    stream = Stream(monkeypatch, added_ms=10_500)
    handed_over: list[int] = []
    stream.harness.copy(
        lambda results: handed_over.append(len(results)),
        until_ms=stream.harness.clock.unix_ms() + 10_000,
        run="run-1",
        epoch=7,
        lease_ms=5_000,
    )
    assert handed_over == [2]
    assert stream.harness.clock.now() > stream.added_ms + 2_000
    assert (stream.loads, 2 in stream.harness.target.sent) == (0, False)
