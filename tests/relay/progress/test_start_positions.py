"""What the target is asked for the copies that start."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from mirror.cluster.types import TopicPartition
from mirror.relay.futures import done, failed
from mirror.relay.progress.lookup.lookup_results import TargetTopics
from mirror.relay.progress.lookup.start_positions import StartPositions
from mirror.relay.progress.target_log import TargetMark
from tests.fakes.clock import FakeClock
from tests.relay.copy_harness import progress_at
from tests.relay.task_harness import Lookups

OLD, LATE, NEW, NEWER = (TopicPartition(name, 0) for name in ("old", "late", "new", "newer"))


class Describing(Lookups):
    """Its descriptions fail on demand."""

    fails = False

    def target_topics(self, topics: Collection[str] | None, timeout_ms: int) -> Future[TargetTopics]:
        described = super().target_topics(topics, timeout_ms)
        return failed(TimeoutError()) if self.fails else described

    def read_progress_records(self) -> None:
        """Never ends."""


def test_copies_that_are_added_share_a_description_of_their_own_topics() -> None:
    """A task may have 10,000 others."""
    lookups, now = Describing(FakeClock()), [0]

    def submit(call: Callable[..., Any], *_: Any) -> Future[Any]:
        del call
        return Future()

    positions = StartPositions(lookups, submit, lambda: now[0])  # type: ignore[arg-type]
    for tp in (OLD, TopicPartition("old", 1)):
        positions.resolve_start(tp, None, None, 1_000, source_topic="")
    assert lookups.described == [None]
    positions.add_targets([NEW, NEWER])
    for tp in (NEW, NEWER, LATE):
        positions.resolve_start(tp, None, None, 1_000, source_topic="")
    assert lookups.described == [None, {"new", "newer"}, None]
    positions.resolve_start(NEW, None, None, 1_000, source_topic="")
    assert lookups.described[3:] == [["new"]], "its attempt has failed"
    now[0], lookups.fails = 600, True
    positions.add_targets([TopicPartition("new", 1), TopicPartition("new", 2)])
    for number in (1, 2):
        positions.resolve_start(TopicPartition("new", number), None, None, 1_000, source_topic="")
    assert lookups.described[4:] == [{"new"}, {"new"}], "a failed one is of no use"


MARK = TargetMark(topic_id="id", end=50, leader_epoch=3, producer_id=7, since=48)
PROGRESS = replace(progress_at(4), target=MARK)


class Describes(Lookups):
    """The target's topic, and how often its leader is asked, whose log is as long as the mark says."""

    def __init__(self, topic_id: str, leader_epoch: int | None) -> None:
        super().__init__(FakeClock())
        self.asked, self.end = 0, 51
        self.leads = 4 if leader_epoch is None else leader_epoch
        """The leader's epoch, which may be newer than the described one."""
        self._topic_id, self._epoch = topic_id, leader_epoch

    def target_topics(self, topics: Collection[str] | None, timeout_ms: int) -> Future[Any]:
        del topics, timeout_ms
        return done(self)

    def topic_id(self, _: TopicPartition) -> str:
        return self._topic_id

    def leader_epoch(self, _: TopicPartition) -> int | None:
        return self._epoch

    def check_suspect_log(self) -> None:
        """Not called: the test sees that it is submitted."""

    def is_committed(self, tp: TopicPartition, mark: TargetMark) -> bool:
        """The former leader epoch ends with the data: the marker is in the present one."""
        assert (tp, mark) == (OLD, MARK)
        return True

    def log_end(self, tp: TopicPartition, timeout_ms: int) -> Future[tuple[int, int]]:
        assert (tp, timeout_ms) == (OLD, 1_000)
        self.asked += 1
        return done((self.end, self.leads))

    def epoch_end(self, tp: TopicPartition, leader_epoch: int, timeout_ms: int) -> Future[int]:
        assert (tp, leader_epoch, timeout_ms) == (OLD, MARK.leader_epoch, 1_000)
        self.asked += 1
        return done(50)


def at_once(call: Callable[..., Any], *arguments: Any) -> Future[Any]:
    return done(call(*arguments))


@pytest.mark.parametrize(
    ("topic_id", "leader_epoch", "continues", "asked"),
    [("id", 3, True, 0), ("id", 4, True, 1), ("id", None, True, 1), ("id", 3, False, 1)],
    ids=["same leader", "another leader", "unknown leader", "first attempt"],
)
def test_a_copy_that_continues_asks_only_another_leader(
    topic_id: str, leader_epoch: int | None, continues: bool, asked: int
) -> None:
    lookups = Describes(topic_id, leader_epoch)
    positions = StartPositions(lookups, at_once, lambda: 0)  # type: ignore[arg-type]
    start = positions.resolve_start(OLD, PROGRESS, MARK, 1_000, source_topic="", continues=continues).result(0)
    assert (start.progress, start.target_end) == (PROGRESS, 50)
    assert start.mark == replace(MARK, leader_epoch=leader_epoch or MARK.leader_epoch)
    assert lookups.asked == asked


@pytest.mark.parametrize(("log_end", "since"), [(50, 50), (51, 50), (52, 48)])
@pytest.mark.parametrize(
    ("leader_epoch", "leads", "asked"),
    [(3, 3, 1), (4, 4, 2), (None, 4, 2), (3, 4, 2), (3, -1, 2)],
    ids=["same leader", "another one", "not described", "another one than described", "leader without an epoch"],
)
def test_end_of_the_log_is_in_the_answer_of_a_leader_that_was_compared_before(
    leader_epoch: int | None, leads: int, asked: int, log_end: int, since: int
) -> None:
    """A log that ends at the mark, or behind its marker, shows that the mark is exact."""
    lookups = Describes("id", leader_epoch)
    lookups.end, lookups.leads = log_end, leads
    positions = StartPositions(lookups, at_once, lambda: 0)  # type: ignore[arg-type]
    start = positions.resolve_start(OLD, PROGRESS, MARK, 1_000, source_topic="", to_end=True).result(0)
    assert (start.target_end, lookups.asked) == (log_end, asked)
    assert start.mark == replace(MARK, leader_epoch=max(leader_epoch or 3, leads), since=since)


def test_epoch_that_neither_the_description_nor_the_leader_knows_is_not_stored() -> None:
    lookups, mark = Describes("id", None), replace(MARK, leader_epoch=None)
    lookups.leads = -1
    positions = StartPositions(lookups, at_once, lambda: 0)  # type: ignore[arg-type]
    resolved = positions.resolve_start(OLD, replace(PROGRESS, target=mark), mark, 1_000, source_topic="", to_end=True)
    start = resolved.result(0)
    assert start.mark == mark.ending_at(mark.end)


@pytest.mark.parametrize("leader_epoch", [3, 4, None], ids=["former leader", "leader that answers", "not described"])
@pytest.mark.parametrize("leads", [4, 5])
def test_marker_is_looked_for_if_the_leader_that_answers_is_another_one(
    leader_epoch: int | None, leads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is the described one or not: the former leader epoch ends with the data."""
    lookups, suspected = Describes("id", leader_epoch), list[Any]()
    lookups.leads = leads
    monkeypatch.setattr(lookups, "is_committed", lambda *_: False)

    def submit(call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        if call != lookups.check_suspect_log:
            return at_once(call, *arguments)
        suspected.append(arguments[-1])
        return Future()

    positions = StartPositions(lookups, submit, lambda: 0)  # type: ignore[arg-type]
    positions.resolve_start(OLD, PROGRESS, MARK, 1_000, source_topic="", to_end=True)
    assert suspected == [MARK.end - 1]


def test_a_copy_that_continues_notices_another_topic() -> None:
    submitted: list[Any] = []

    def submit(*call: Any) -> Future[Any]:
        submitted.append(call)
        return Future()

    lookups = Describes("another", 3)
    positions = StartPositions(lookups, submit, lambda: 0)  # type: ignore[arg-type]
    positions.resolve_start(OLD, PROGRESS, MARK, 1_000, source_topic="", continues=True)
    ((call, *_),) = submitted
    assert call == lookups.check_suspect_log
