"""What a writer at least once reads, repeats and commits."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any, cast

from mirror.client import OffsetAndMetadata, TopicPartition
from mirror.relay.futures import done
from mirror.relay.model.way import Way
from mirror.relay.partition.writers.at_least_once_writer import AtLeastOnceWriter
from mirror.relay.progress.committed import Progress, from_offset, to_offset
from mirror.relay.progress.target_loss import LossKind, TargetLoss
from tests.relay.copy_harness import progress_at
from tests.relay.hand_context import TARGET

OPENED = replace(progress_at(4), generation=5, time_ms=1_000)


class Groups:
    """The target's groups, which hold one progress; also the task's committer."""

    def __init__(self) -> None:
        self.commits: list[Progress] = []
        self.stable: list[bool] = []

    def group_offsets_async(self, _group: str, _tps: object, _timeout_ms: int, *, require_stable: bool) -> Future[Any]:
        self.stable.append(require_stable)
        return done({TARGET: to_offset(OPENED)})

    def commit(self, tp: TopicPartition, offset: OffsetAndMetadata, timeout_ms: int) -> Future[None]:
        assert (tp, timeout_ms) == (TARGET, 1_000)
        self.commits.append(from_offset(offset))
        return done(None)


def writer_of(groups: Groups) -> AtLeastOnceWriter:
    any_ = cast("Any", groups)
    return AtLeastOnceWriter("flow", TARGET, any_, any_, any_, 1)


def test_it_does_not_wait_for_the_claim_of_a_killed_copy() -> None:
    groups = Groups()
    writer = writer_of(groups)
    assert writer.open(1_000, replace(OPENED, offset=2)).result(0) == OPENED, "what was planned would repeat"
    assert groups.stable == [False]
    assert writer.acquired


def test_after_a_loss_it_repeats_from_the_anchor() -> None:
    loss = TargetLoss(flow="flow", kind=LossKind.TRUNCATED, progress=OPENED, end=3, cut=1)
    found = writer_of(Groups()).acquire(replace(OPENED, offset=1), 1_000, loss).result(0)
    assert (found.progress.offset, found.loss) == (1, loss)


def test_it_commits_no_claim_of_a_copy_by_sequences() -> None:
    groups = Groups()
    writer_of(groups).commit(replace(OPENED, offset=6, way=Way.SEQUENCES, producer_id=7), 1_000)
    assert groups.commits == [replace(OPENED, offset=6)]
