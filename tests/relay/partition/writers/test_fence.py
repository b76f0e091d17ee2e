"""The takeover of a partition: what the claim says, and whose appends are searched for."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any, cast

from mirror.producer.batch.queue import ProducerId
from mirror.relay.futures import done
from mirror.relay.model.way import Way
from mirror.relay.partition.writers.fence import PartitionTransactions, fence_and_find, fence_and_find_after_loss
from mirror.relay.progress.committed import NO_TOTALS, Progress, from_offset, to_offset
from mirror.relay.progress.position import Appenders, FoundPosition
from mirror.relay.progress.target_log import TargetMark
from mirror.relay.progress.target_loss import LossKind, TargetLoss
from tests.relay.copy_harness import progress_at


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
