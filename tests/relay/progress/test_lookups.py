"""The state of the source while its brokers learn, one after the other, that a topic was recreated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from mirror.client import TopicPartition
from mirror.errors import FlowError
from mirror.relay.progress.committed import Progress, StartChanged
from mirror.relay.progress.gaps import GapKind, SourceState, find_gap
from mirror.relay.progress.lookup.lookup_results import LogBounds
from mirror.relay.progress.lookup.lookups import ClusterLookups
from mirror.relay.progress.progress_topic import ProgressRecord
from mirror.relay.progress.target_log import TargetMark
from mirror.wire.api import Api
from tests.fakes.admin import FakeAdmin
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action, ServerCall

TP = TopicPartition("t", 0)


class SourceHarness:
    """Three brokers, of which broker 3 leads a topic of five records, and the lookups of a task."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(3)
        self.former = self.create_topic(5)
        self.admin = FakeAdmin(self.cluster)
        nothing = cast("Any", None)
        self.lookups = ClusterLookups(
            "f", self.admin, nothing, nothing, [], start_over=False, timeout_ms=1_000, now=self.now, pause=self.pause
        )
        self.pauses = 0
        self.meanwhile: dict[int, Callable[[], object]] = {}

    def create_topic(self, records: int) -> str:
        """Create the topic, or recreate it under its name."""
        topic = self.cluster.add_topic("t")
        topic.partitions[0].leader = 3
        for _ in range(records):
            self.cluster.log("t").append_values(b"value")
        return str(topic.topic_id)

    def now(self) -> float:
        return self.admin.client.now / 1000

    def pause(self, seconds: float) -> None:
        self.pauses += 1
        self.meanwhile.get(self.pauses, lambda: None)()
        self.admin.client.run_for(round(seconds * 1000))

    def state(self, copied: str) -> SourceState:
        return self.lookups.source_state(TP, copied)


@pytest.fixture
def source() -> SourceHarness:
    return SourceHarness()


def progress(offset: int, topic_id: str) -> Progress:
    return Progress(offset=offset, leader_epoch=0, source_cluster_id="c", topic_id=topic_id)


def test_unchanged_topic_is_looked_up_once(source: SourceHarness) -> None:
    source.cluster.move("t", 0, 3)
    state = source.state(source.former)
    assert (state.topic_id, state.earliest, state.end, state.leader_epoch) == (source.former, 0, 5, 1)
    assert source.pauses == 0


@pytest.mark.parametrize("records", [2, 9])
def test_offsets_of_a_recreated_topic_are_not_mistaken_for_former_ones(source: SourceHarness, records: int) -> None:
    """Any broker may still know the former topic; the leader has the new log."""
    source.cluster.lag(1, 2)
    now = source.create_topic(records)
    state = source.state(source.former)
    assert (state.topic_id, state.end) == (now, records)
    gap = find_gap(progress(5, source.former), state.topic_id, state.earliest, state.end)
    assert gap is not None
    assert (gap.kind, gap.resume) == (GapKind.RECREATED, 0)


def test_topic_recreated_between_two_calls_is_looked_up_again(source: SourceHarness) -> None:
    created: list[str] = []

    def between(call: ServerCall) -> Action | None:
        if call.api is Api.LIST_OFFSETS and not created:
            created.append(source.create_topic(2))
        return None

    source.cluster.control.add(between)
    state = source.state(source.former)
    assert (state.topic_id, state.end) == (created[0], 2)
    assert source.pauses >= 2


def test_lagging_leader_does_not_hide_the_present_topic(source: SourceHarness) -> None:
    source.cluster.lag(1, 2, 3)
    now = source.create_topic(9)
    source.meanwhile = {1: lambda: source.cluster.catch_up(1, 2, 3)}
    state = source.state(now)
    assert (state.topic_id, state.end, source.pauses) == (now, 9, 1)
    source.state(now)
    assert source.pauses == 1


def test_topic_unknown_to_lagging_brokers_is_not_deleted(source: SourceHarness) -> None:
    topic = source.cluster.topics.pop("t")
    source.cluster.lag(1, 2, 3)
    source.cluster.topics["t"] = topic
    source.meanwhile = {1: lambda: source.cluster.catch_up(1, 2, 3)}
    assert source.state(source.former).end == 5


def test_deleted_topic_fails(source: SourceHarness) -> None:
    del source.cluster.topics["t"]
    with pytest.raises(FlowError, match="t-0: the source topic is gone"):
        source.state(source.former)
    assert source.pauses == 1


def test_partitions_of_a_topic_share_one_pause(source: SourceHarness) -> None:
    now = source.create_topic(9)
    for _ in range(3):
        assert source.state(source.former).topic_id == now
    assert source.pauses == 1


def test_unconfirmed_topic_is_not_accepted_by_another_partition(source: SourceHarness) -> None:
    source.cluster.lag(1, 2, 3)
    now = source.create_topic(9)
    found: list[str] = []
    source.meanwhile = {
        1: lambda: found.append(source.state(now).topic_id),
        2: lambda: source.cluster.catch_up(1, 2, 3),
    }
    assert source.state(now).topic_id == now
    assert found == [now]


def test_brokers_that_never_agree_are_reported(source: SourceHarness) -> None:
    def always(call: ServerCall) -> Action | None:
        if call.api is Api.LIST_OFFSETS:
            source.create_topic(2)
        return None

    source.cluster.control.add(always)
    with pytest.raises(FlowError, match="its brokers do not agree on which topic 't' is"):
        source.state(source.former)


def test_log_without_epochs_has_no_leader_epoch(source: SourceHarness) -> None:
    def without_epochs(answer: Any) -> Any:
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.leader_epoch = partition.leader_epoch if partition.offset else -1
        return answer

    source.cluster.control.on(Api.LIST_OFFSETS, Action(rewrite=without_epochs), times=None)
    assert source.state(source.former).leader_epoch is None


# --- the target


class TargetHarness(SourceHarness):
    """The same topic as the target of a copy."""

    def __init__(self) -> None:
        super().__init__()
        nothing = cast("Any", None)
        self.lookups = ClusterLookups(
            "f", nothing, self.admin, nothing, [TP], start_over=False, timeout_ms=1_000, now=self.now, pause=self.pause
        )

    def resolve(self, way: str, copied: str, described: str) -> None:
        """A copy of five records into the topic ``copied`` begins; a broker has ``described`` the topic."""
        mark, current = TargetMark(topic_id=copied, end=5), TargetMark(topic_id=described, end=5)
        if way == "with progress":
            self.lookups.check_suspect_log(TP, progress(5, "s"), mark, -1, current)
        else:
            record = ProgressRecord(progress(5, "s"), 5)
            self.lookups.resolve_start(TP, LogBounds(0, 5), record, mark, current)


WAYS = pytest.mark.parametrize("way", ["with progress", "without progress"])


@WAYS
def test_target_is_not_recreated_if_only_a_lagging_broker_says_so(way: str) -> None:
    target = TargetHarness()
    with pytest.raises(StartChanged, match="t-0: a broker described its topic as"):
        target.resolve(way, target.former, "11111111-1111-1111-1111-111111111111")


@WAYS
def test_target_that_its_leader_describes_otherwise_a_second_later_is_not_recreated(way: str) -> None:
    target = TargetHarness()
    present = target.cluster.topics["t"]
    former = target.create_topic(5)
    target.meanwhile = {1: lambda: target.cluster.topics.update(t=present)}
    with pytest.raises(StartChanged):
        target.resolve(way, target.former, former)
    assert target.pauses == 1


def test_recreated_target_is_reported_after_a_second_that_its_partitions_share() -> None:
    target = TargetHarness()
    now = target.create_topic(5)
    for _ in range(3):
        with pytest.raises(FlowError, match="target-recreated"):
            target.resolve("with progress", target.former, now)
    assert target.pauses == 1


def test_log_that_is_shorter_than_it_was_known_to_be_is_truncated() -> None:
    """Without the check, a copy into a log that was emptied would begin again without an error."""
    target = TargetHarness()
    mark = TargetMark(topic_id=target.former, end=5)
    with pytest.raises(FlowError, match=r"target-truncated: .* up to offset 5, and the log was cut back to 0"):
        target.lookups.resolve_start(TP, LogBounds(0, 0), None, mark, replace(mark, end=0))
