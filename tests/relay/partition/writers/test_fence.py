"""The takeover of a partition: what the claim says, and whose appends are searched for."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any, cast

from mirror.client import Admin, OffsetAndMetadata, TopicPartition
from mirror.producer.batch.queue import ProducerId
from mirror.relay.futures import done
from mirror.relay.model.way import Way
from mirror.relay.partition.writers.fence import (
    PartitionTransactions,
    fence_and_find,
    fence_and_find_after_loss,
    read_latest_progress,
)
from mirror.relay.progress.committed import NO_TOTALS, Progress, from_offset, group_of, lazy_group_of, to_offset
from mirror.relay.progress.position import Appenders, FoundPosition
from mirror.relay.progress.target_log import TargetMark
from mirror.relay.progress.target_loss import LossKind, TargetLoss
from tests.relay.copy_harness import progress_at
from tests.relay.hand_context import TARGET


class Fences:
    """Fences as this producer, and keeps the claim as it is stored."""

    def __init__(self, identity: ProducerId) -> None:
        self.identity = identity
        self.claims: list[Progress] = []

    def fence(self, claim: Progress, _: int) -> Future[ProducerId]:
        claim = replace(claim, producer_id=self.identity.producer_id, attempt=self.identity.epoch)
        self.claims.append(from_offset(to_offset(claim)))
        return done(self.identity)

    claim = fence


class Search:
    """Finds the position of the progress itself, and keeps whose appends were searched for."""

    advanced_ms = 0

    def __init__(self) -> None:
        self.asked: list[Appenders] = []

    def find(self, query: Progress, appenders: Appenders, *_: Any) -> Future[FoundPosition]:
        self.asked.append(appenders)
        return done(FoundPosition(query, NO_TOTALS))

    def timeout_error(self) -> None:
        """Nothing takes too long."""

    def close(self) -> None:
        """Nothing is read."""


def searched_for(progress: Progress, identity: ProducerId) -> tuple[Appenders, Progress]:
    """Whose appends are searched for, and the claim."""
    search, fences = Search(), Fences(identity)
    fence_and_find(cast("PartitionTransactions", fences), search, progress, Way.SEQUENCES, 1_000).result()
    (appenders,), (claim,) = search.asked, fences.claims
    return appenders, claim


def test_attempts_that_died_before_they_committed_a_position_are_all_searched_for() -> None:
    """Each has another producer id: the coordinator had forgotten the one before."""
    mark = TargetMark(topic_id="a", end=50, producer_id=1)
    progress = replace(progress_at(4), way=Way.SEQUENCES, producer_id=2, target=mark)
    for number in range(3, 7):
        appenders, progress = searched_for(progress, ProducerId(number, 0))
        assert appenders == Appenders(frozenset(range(1, number + 1)), ended=False)
        assert (progress.offset, progress.producer_id) == (4, number)


def test_claim_does_not_say_that_its_own_attempt_has_ended() -> None:
    progress = replace(progress_at(4), way=Way.SEQUENCES, producer_id=2, attempt=1, ended=True)
    appenders, claim = searched_for(progress, ProducerId(2, 3))
    assert appenders.ended
    assert (claim.ended, claim.attempt) == (False, 3)


def test_transactions_behind_a_claim_of_transactions_are_searched_for() -> None:
    """Normally there are none: where the log begins does not matter then."""
    mark = TargetMark(topic_id="a", end=50, producer_id=1, since=50)
    appenders, claim = searched_for(replace(progress_at(4), target=mark), ProducerId(2, 3))
    assert appenders == Appenders(frozenset({1, 2}), ended=True)
    assert (claim.way, claim.earlier_ids) == (Way.SEQUENCES, frozenset({1}))


def test_what_a_copy_at_least_once_has_repeated_is_not_searched_for() -> None:
    mark = TargetMark(topic_id="a", end=50, producer_id=1, batch=(0, 7))
    appenders, _ = searched_for(replace(progress_at(4), target=mark), ProducerId(2, 3))
    assert appenders == Appenders(frozenset({2}), ended=True)


def test_after_a_loss_the_appends_of_all_producers_that_have_copied_are_searched_for() -> None:
    """The anchor is older than the progress: other producers may have copied what is behind it."""
    mark = TargetMark(topic_id="a", end=50, producer_id=3)
    lost = replace(progress_at(40), way=Way.SEQUENCES, producer_id=4, target=mark)
    known = frozenset({-1, 1, 2})
    loss = TargetLoss(flow="flow", kind=LossKind.TRUNCATED, progress=lost, end=50, cut=30, producer_ids=known)
    search, fences = Search(), Fences(ProducerId(5, 0))
    anchored = replace(lost, offset=10)
    found = fence_and_find_after_loss(cast("PartitionTransactions", fences), search, anchored, loss, 1_000).result()
    assert search.asked == [Appenders(frozenset({1, 2, 3, 4, 5}), ended=False)]
    assert [claim.offset for claim in fences.claims] == [40, 10], "each attempt detects the loss until then"
    assert (found.progress.offset, found.loss) == (10, loss)


class Groups:
    """The committed offsets of a partition's groups, which the test answers."""

    def __init__(self) -> None:
        self.asked = dict[str, Future[dict[TopicPartition, OffsetAndMetadata]]]()

    def group_offsets_async(
        self, group: str, tps: list[TopicPartition], timeout_ms: int, *, require_stable: bool = True
    ) -> Future[dict[TopicPartition, OffsetAndMetadata]]:
        assert (tps, timeout_ms, require_stable) == ([TARGET], 1_000, True)
        self.asked[group] = Future()
        return self.asked[group]

    def answer(self, group: str, progress: Progress) -> None:
        self.asked[group].set_result({TARGET: to_offset(progress)})


def test_claim_and_lazy_progress_are_read_at_once_and_the_later_one_counts() -> None:
    """One request serves both, for all partitions that are acquired in the same turn."""
    groups = Groups()
    claim = replace(progress_at(4), way=Way.SEQUENCES, generation=5, producer_id=7, attempt=2)
    read = read_latest_progress(cast("Admin", groups), "f", TARGET, 1_000, at_once=True)
    assert groups.asked.keys() == {group_of("f", TARGET), lazy_group_of("f", TARGET)}
    groups.answer(lazy_group_of("f", TARGET), replace(claim, offset=6))
    assert not read.done()
    groups.answer(group_of("f", TARGET), claim)
    found = read.result(0)
    assert found is not None
    assert found.offset == 6


def test_lazy_progress_of_another_way_is_not_waited_for() -> None:
    groups = Groups()
    read = read_latest_progress(cast("Admin", groups), "f", TARGET, 1_000, at_once=True)
    groups.answer(group_of("f", TARGET), progress_at(4))
    found = read.result(0)
    assert found is not None
    assert found.offset == 4
