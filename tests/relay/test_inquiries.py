"""What the source is found to have, while its brokers learn one after the other that a topic was made again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from mirror.client import TopicPartition
from mirror.errors import FlowError
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.gaps import GapKind, SourceState, find_gap
from mirror.relay.progress.lookups import ClusterLookups
from mirror.wire.api import Api
from tests.fakes.admin import FakeAdmin
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action, ServerCall

TP = TopicPartition("t", 0)


class Source:
    """A cluster of three, broker 3 leads; a topic of five records, and what is asked of it."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(3)
        self.former = self.make(5)
        self.admin = FakeAdmin(self.cluster)
        nothing = cast("Any", None)
        self.inquiries = ClusterLookups(
            "f", self.admin, nothing, nothing, [], start_over=False, timeout_ms=1_000, now=self.now, pause=self.pause
        )
        self.pauses = 0
        self.meanwhile: dict[int, Callable[[], object]] = {}

    def make(self, records: int) -> str:
        """The topic, or another one under its name."""
        made = self.cluster.add_topic("t")
        made.partitions[0].leader = 3
        for _ in range(records):
            self.cluster.log("t").append_values(b"value")
        return str(made.topic_id)

    def now(self) -> float:
        return self.admin.client.now / 1000

    def pause(self, seconds: float) -> None:
        self.pauses += 1
        self.meanwhile.get(self.pauses, lambda: None)()
        self.admin.client.run_for(round(seconds * 1000))

    def state(self, copied: str) -> SourceState:
        return self.inquiries.source_state(TP, copied)


@pytest.fixture
def source() -> Source:
    return Source()


def progress(offset: int, topic_id: str) -> Progress:
    return Progress(offset=offset, leader_epoch=0, source_cluster_id="c", topic_id=topic_id)


def test_a_topic_that_is_as_it_was_is_asked_for_once(source: Source) -> None:
    source.cluster.move("t", 0, 3)
    state = source.state(source.former)
    assert (state.topic_id, state.earliest, state.end, state.leader_epoch) == (source.former, 0, 5, 1)
    assert source.pauses == 0


@pytest.mark.parametrize("records", [2, 9])
def test_the_offsets_of_a_new_topic_are_never_taken_for_those_of_the_former(source: Source, records: int) -> None:
    """Any broker may still know the former topic; the leader has the new log."""
    source.cluster.lag(1, 2)
    now = source.make(records)
    state = source.state(source.former)
    assert (state.topic_id, state.end) == (now, records)
    gap = find_gap(progress(5, source.former), state.topic_id, state.earliest, state.end)
    assert gap is not None
    assert (gap.kind, gap.resume) == (GapKind.RECREATED, 0)


def test_a_topic_that_is_made_again_between_two_questions_is_asked_for_again(source: Source) -> None:
    made: list[str] = []

    def between(call: ServerCall) -> Action | None:
        if call.api is Api.LIST_OFFSETS and not made:
            made.append(source.make(2))
        return None

    source.cluster.control.add(between)
    state = source.state(source.former)
    assert (state.topic_id, state.end) == (made[0], 2)
    assert source.pauses >= 2


def test_a_leader_that_lags_does_not_make_the_present_topic_a_former_one(source: Source) -> None:
    source.cluster.lag(1, 2, 3)
    now = source.make(9)
    source.meanwhile = {1: lambda: source.cluster.catch_up(1, 2, 3)}
    state = source.state(now)
    assert (state.topic_id, state.end, source.pauses) == (now, 9, 1)
    source.state(now)
    assert source.pauses == 1


def test_brokers_that_do_not_know_a_new_topic_yet_do_not_make_it_gone(source: Source) -> None:
    kept = source.cluster.topics.pop("t")
    source.cluster.lag(1, 2, 3)
    source.cluster.topics["t"] = kept
    source.meanwhile = {1: lambda: source.cluster.catch_up(1, 2, 3)}
    assert source.state(source.former).end == 5


def test_a_topic_that_is_gone_is_gone(source: Source) -> None:
    del source.cluster.topics["t"]
    with pytest.raises(FlowError, match="t-0: the source topic is gone"):
        source.state(source.former)
    assert source.pauses == 1


def test_a_topic_s_partitions_wait_once_for_all(source: Source) -> None:
    now = source.make(9)
    for _ in range(3):
        assert source.state(source.former).topic_id == now
    assert source.pauses == 1


def test_what_one_partition_has_just_found_is_not_believed_by_the_next(source: Source) -> None:
    source.cluster.lag(1, 2, 3)
    now = source.make(9)
    found: list[str] = []
    source.meanwhile = {
        1: lambda: found.append(source.state(now).topic_id),
        2: lambda: source.cluster.catch_up(1, 2, 3),
    }
    assert source.state(now).topic_id == now
    assert found == [now]


def test_brokers_that_never_agree_are_told_of(source: Source) -> None:
    def always(call: ServerCall) -> Action | None:
        if call.api is Api.LIST_OFFSETS:
            source.make(2)
        return None

    source.cluster.control.add(always)
    with pytest.raises(FlowError, match="its brokers do not agree on which topic 't' is"):
        source.state(source.former)


def test_a_log_without_epochs_tells_none(source: Source) -> None:
    def without(answer: Any) -> Any:
        for topic in answer.topics:
            for each in topic.partitions:
                each.leader_epoch = each.leader_epoch if each.offset else -1
        return answer

    source.cluster.control.on(Api.LIST_OFFSETS, Action(rewrite=without), times=None)
    assert source.state(source.former).leader_epoch is None
