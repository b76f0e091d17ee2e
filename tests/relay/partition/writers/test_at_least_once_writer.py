"""How a writer at least once takes over from the attempt of the epoch before, and what it commits under its lease."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any, cast

import pytest

from mirror.client import OffsetAndMetadata, TopicPartition
from mirror.relay.futures import done
from mirror.relay.partition.writers.at_least_once_writer import AtLeastOnceWriter
from mirror.relay.partition.writers.continuation import Continuation
from mirror.relay.progress.committed import Progress, ProgressChanged, from_offset, to_offset
from mirror.relay.progress.position import FoundPosition
from mirror.relay.progress.target_loss import LossKind, TargetLoss
from tests.relay.copy_harness import progress_at
from tests.relay.hand_context import TARGET

OPENED = replace(progress_at(4), generation=5, time_ms=1_000)
RESOLVED = replace(OPENED, time_ms=2_000)


class Groups:
    """The target's groups, which hold one progress; also the task's committer."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.commits: list[Progress] = []
        self.stable: list[bool] = []

    def group_offsets_async(self, _group: str, _tps: object, _timeout_ms: int, *, require_stable: bool) -> Future[Any]:
        self.stable.append(require_stable)
        return done({} if self.progress is None else {TARGET: to_offset(self.progress)})

    def commit_offset_async(
        self, _: str, tp: TopicPartition, offset: OffsetAndMetadata, timeout_ms: int
    ) -> Future[Any]:
        return self.commit(tp, offset, timeout_ms)

    def commit(self, tp: TopicPartition, offset: OffsetAndMetadata, timeout_ms: int) -> Future[None]:
        assert (tp, timeout_ms) == (TARGET, 1_000)
        self.progress = from_offset(offset)
        self.commits.append(self.progress)
        return done(None)


class Site:
    """One writer, and the attempt before it, whose answer the test gives."""

    def __init__(self, *, opened: Progress | None = OPENED, earlier: bool = True, takes_over: bool = True) -> None:
        self.groups = Groups(opened)
        self.asked = Future[Continuation | None]()
        self.under_lease = False
        any_ = cast("Any", self.groups)
        self.writer = AtLeastOnceWriter(
            "flow",
            TARGET,
            any_,
            any_,
            any_,
            1,
            takes_over=takes_over,
            earlier=(lambda: self.asked) if earlier else None,
            under_lease=lambda: self.under_lease,
        )
        assert self.writer.open(1_000).result(0) == opened

    def acquire(self, resolved: Progress = RESOLVED, loss: TargetLoss | None = None) -> Future[FoundPosition]:
        assert (self.writer.acquired, self.writer.continues) == (False, True)
        return self.writer.acquire(resolved, 1_000, loss)


def test_it_does_not_wait_for_the_claim_of_a_killed_copy() -> None:
    site = Site()
    assert site.groups.stable == [False]


def test_writer_of_a_batch_run_takes_over_from_nobody() -> None:
    site = Site(earlier=False, takes_over=False)
    assert (site.writer.acquired, site.writer.continues) == (True, False)


def test_it_begins_where_the_earlier_attempt_has_yielded() -> None:
    site = Site()
    found = site.acquire()
    assert not site.writer.acquired
    site.asked.set_result(Continuation(replace(OPENED, offset=9), None))
    assert found.result(0).progress.offset == 9
    assert site.writer.acquired
    assert not site.writer.continues
    assert site.groups.commits == []


@pytest.mark.parametrize(
    "yielded",
    [
        None,
        Continuation(replace(OPENED, offset=3), None),
        Continuation(replace(OPENED, offset=9, generation=6), None),
        Continuation(replace(OPENED, offset=9, topic_id="other"), None),
    ],
    ids=["no answer", "behind the progress", "started over", "another source topic"],
)
def test_it_resumes_at_the_committed_progress_if_the_earlier_attempt_cannot_be_continued(
    yielded: Continuation | None,
) -> None:
    site = Site()
    found = site.acquire()
    site.groups.progress = replace(OPENED, offset=7, time_ms=1_500)  # it has committed until now
    site.asked.set_result(yielded)
    assert found.result(0).progress.offset == 7
    assert site.writer.acquired


def test_it_commits_the_progress_again_so_that_an_earlier_attempt_elsewhere_ends() -> None:
    site = Site(earlier=False)
    assert site.acquire().result(0).progress == RESOLVED
    assert site.groups.commits == [RESOLVED]


def test_progress_that_a_late_commit_has_moved_back_is_moved_forward() -> None:
    site = Site(earlier=False)
    site.groups.progress = replace(OPENED, offset=2, time_ms=900)
    assert site.acquire().result(0).progress == RESOLVED
    assert site.groups.commits == [RESOLVED]


def test_copy_without_progress_commits_its_start_itself() -> None:
    site = Site(opened=None, earlier=False)
    assert site.acquire().result(0).progress == RESOLVED
    assert site.groups.commits == []


def test_copy_that_another_attempt_has_started_over_begins_again() -> None:
    site = Site(earlier=False)
    site.groups.progress = replace(OPENED, offset=0, generation=6)
    assert isinstance(site.acquire().exception(0), ProgressChanged)
    assert not site.writer.acquired


def test_after_a_loss_it_repeats_from_the_anchor_once_the_earlier_attempt_has_ended() -> None:
    loss = TargetLoss(flow="flow", kind=LossKind.TRUNCATED, progress=OPENED, end=3, cut=1)
    site = Site()
    found = site.acquire(replace(RESOLVED, offset=1), loss)
    assert not found.done()
    site.asked.set_result(Continuation(replace(OPENED, offset=9), None))
    assert (found.result(0).progress.offset, found.result(0).loss) == (1, loss)


# --- under its lease


def test_commit_under_a_lease_is_made_while_no_other_attempt_has_committed() -> None:
    site = Site()
    site.under_lease = True
    for offset in (5, 6):
        assert site.writer.commit(replace(OPENED, offset=offset, time_ms=3_000), 1_000).result(0) is None
    assert [progress.offset for progress in site.groups.commits] == [5, 6]


@pytest.mark.parametrize("other", [None, RESOLVED, replace(OPENED, offset=5)], ids=["none", "claim", "another offset"])
def test_commit_under_a_lease_fails_if_another_attempt_has_committed(other: Progress | None) -> None:
    site = Site()
    site.under_lease = True
    site.groups.progress = other
    committed = site.writer.commit(replace(OPENED, offset=6, time_ms=3_000), 1_000)
    assert isinstance(committed.exception(0), ProgressChanged)
    assert site.groups.commits == []
    assert site.groups.progress == other


def test_commit_of_its_own_that_seemed_to_fail_does_not_end_it() -> None:
    """The broker has executed it; only the answer was lost."""
    site = Site()
    lost = replace(OPENED, offset=5, time_ms=2_500)
    site.writer.commit(lost, 1_000)
    site.under_lease = True
    site.writer.commit(replace(OPENED, offset=6, time_ms=3_000), 1_000)
    site.groups.progress = lost
    assert site.writer.commit(replace(OPENED, offset=7, time_ms=3_500), 1_000).result(0) is None
