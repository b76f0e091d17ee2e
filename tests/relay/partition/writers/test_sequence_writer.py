"""The writer of an attempt by sequences: what it does once it is closed."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any, cast

import pytest

from mirror.client import TopicPartition
from mirror.errors import ClientClosed, FlowError, KafkaTimeout
from mirror.producer.batch.queue import ProducerId
from mirror.relay.futures import done
from mirror.relay.model.way import Way
from mirror.relay.partition.writers import sequence_writer
from mirror.relay.partition.writers.sequence_writer import FENCE_VALID_MS, SequenceWriter, SharedClients, fence_valid_ms
from mirror.relay.progress.committed import NO_TOTALS, Progress, ProgressChanged
from mirror.relay.progress.committer import LAZY_BYTES, LAZY_INTERVALS, LAZY_MS, lazy_interval_ms
from mirror.relay.progress.position import FoundPosition
from mirror.relay.progress.target_loss import LossKind, TargetLoss
from mirror.telemetry.lag.lags import CAUGHT_UP_S
from tests.relay.copy_harness import progress_at
from tests.relay.hand_context import TARGET

VALID_MS = 60_000
IDENTITY = ProducerId(7, 3)
CLAIM = replace(progress_at(4), way=Way.SEQUENCES, generation=5, producer_id=7, attempt=2, time_ms=1_000)
LOSS = TargetLoss(flow="flow", kind=LossKind.TRUNCATED, progress=CLAIM, end=9, cut=5)


class Site:
    """A writer whose answers the test gives; it is the task's producer, the search, and the fencing producers, too."""

    advanced_ms = 0
    identity = IDENTITY
    claim_epoch = IDENTITY.epoch

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, valid_ms: int = VALID_MS, progress: Progress | None = CLAIM
    ) -> None:
        self.calls = list[str]()
        self.fences_in_doubt = 0
        self.initialized = Future[None]()
        self.found = Future[FoundPosition]()
        self.searched_from = list[Progress]()
        self.progress = progress
        self.claim = Future[Progress | None]()
        self.keeps_metadata = False
        self.producer = self
        monkeypatch.setattr(sequence_writer, "PartitionTransactions", self._fencing)
        monkeypatch.setattr(sequence_writer, "read_latest_progress", lambda *_, **__: done(self.progress))
        monkeypatch.setattr(sequence_writer, "read_claim", lambda *_: self.claim)
        monkeypatch.setattr(sequence_writer, "fence_and_find", self._fence_and_find)
        monkeypatch.setattr(sequence_writer, "fence_and_find_after_loss", self._fence_and_find)
        any_ = cast("Any", self)
        shared = SharedClients(any_, any_, any_, any_, valid_ms)
        self.writer = SequenceWriter("flow", TARGET, any_, shared, 1, any_)
        self.writer.open(1_000)

    def acquire(self, *, loss: TargetLoss | None = None) -> Future[FoundPosition]:
        return self.writer.acquire(self.resolved, 1_000, loss)

    @property
    def resolved(self) -> Progress:
        return replace(CLAIM, time_ms=2_000)

    def _fencing(self, *_: object) -> Any:
        self.calls.append("fence")
        return self

    def _fence_and_find(self, fencing: object, search: object, progress: Progress, *_: object) -> Future[FoundPosition]:
        assert fencing is search is self
        self.calls.append("take over")
        self.searched_from.append(progress)
        return self.found

    def timeout_error(self) -> KafkaTimeout | None:
        """Of the search, which has not begun, or of the fencing producer."""
        return KafkaTimeout("the fence is late") if "fence" in self.calls else None

    def init_transactions_async(self, _: int) -> Future[None]:
        return self.initialized

    def adopt(self, tp: TopicPartition, identity: ProducerId, chain: int) -> None:
        assert (tp, identity, chain) == (TARGET, IDENTITY, 1)
        self.calls.append("adopt")

    def release(self, _: TopicPartition) -> None:
        self.calls.append("release")

    def close_async(self) -> None:
        """The fencing producer has done its work."""

    def close(self, _: int = 0) -> Future[None]:
        self.calls.append("close")
        return done(None)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(monkeypatch)


def test_planned_progress_is_not_read_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object, **__: object) -> None:
        raise AssertionError("the progress is known")

    monkeypatch.setattr(sequence_writer, "read_latest_progress", read)
    assert site.writer.open(1_000, CLAIM).result(0) == CLAIM


@pytest.mark.parametrize("loss", [None, LOSS])
def test_closed_writer_does_not_adopt_the_identity_of_its_fence(site: Site, loss: TargetLoss | None) -> None:
    """The next writer may have adopted already, and the shared producer would send its batches no more."""
    acquired = site.acquire(loss=loss)
    site.initialized.set_result(None)
    site.writer.close(1_000)
    site.calls.clear()
    site.found.set_result(FoundPosition(CLAIM, NO_TOTALS))
    assert isinstance(acquired.exception(0), ClientClosed)
    assert not site.writer.acquired
    assert not site.calls


def test_progress_is_read_again_once_earlier_attempts_cannot_change_it(site: Site) -> None:
    """The attempt had read it when it was opened: another one may have committed more since."""
    site.acquire()
    site.progress = replace(CLAIM, offset=6, attempt=3)
    assert site.searched_from == []
    site.initialized.set_result(None)
    assert [progress.offset for progress in site.searched_from] == [6]


@pytest.mark.parametrize("loss", [None, LOSS])
def test_fence_is_adopted_once_the_position_is_found(site: Site, loss: TargetLoss | None) -> None:
    acquired = site.acquire(loss=loss)
    site.initialized.set_result(None)
    assert (site.calls, site.writer.acquired) == (["fence", "take over"], False)
    site.found.set_result(FoundPosition(CLAIM, NO_TOTALS))
    assert acquired.result(0).progress == CLAIM
    assert (site.calls, site.writer.acquired) == (["fence", "take over", "adopt"], True)


def test_loss_of_progress_that_another_attempt_has_changed_is_not_mended(site: Site) -> None:
    """The other attempt has mended it, and has copied on: a claim of the anchor would be behind what is there."""
    acquired = site.acquire(loss=LOSS)
    site.progress = replace(CLAIM, offset=6, attempt=3)
    site.initialized.set_result(None)
    assert isinstance(acquired.exception(0), ProgressChanged)
    assert site.calls == ["fence"]


def _acquired(site: Site) -> SequenceWriter:
    site.acquire()
    site.initialized.set_result(None)
    site.found.set_result(FoundPosition(CLAIM, NO_TOTALS))
    return site.writer


def test_fence_serves_until_the_claim_is_to_be_renewed(site: Site) -> None:
    assert _acquired(site).valid_until_ms == site.resolved.time_ms + VALID_MS


def test_attempt_has_time_to_send_however_soon_its_claim_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise one that is slow to fence would end before it has sent anything, again and again."""
    site = Site(monkeypatch, valid_ms=8_500)
    assert _acquired(site).valid_until_ms == site.resolved.time_ms + 30_000


@pytest.mark.parametrize(("renew_ms", "valid_ms"), [(0, FENCE_VALID_MS), (8_500, 8_500), (86_400_000, FENCE_VALID_MS)])
def test_fence_serves_no_longer_than_its_claim(renew_ms: int, valid_ms: int) -> None:
    assert fence_valid_ms(renew_ms) == valid_ms


@pytest.mark.parametrize(("found_in", "resolved_in"), [(6, 5), (5, 6), (6, 6)])
def test_it_does_not_resume_at_progress_of_another_generation(site: Site, found_in: int, resolved_in: int) -> None:
    """The copy has started over, elsewhere or here: progress from before that must not count."""
    acquired = site.writer.acquire(replace(site.resolved, generation=resolved_in), 1_000, None)
    site.progress = replace(CLAIM, offset=7, generation=found_in)
    site.initialized.set_result(None)
    assert isinstance(acquired.exception(0), ProgressChanged)
    assert site.searched_from == []


def test_acquisition_that_takes_too_long_names_its_step(site: Site) -> None:
    site.acquire()
    assert str(site.writer.acquire_timeout()) == "the fence is late"


COPIED = replace(progress_at(4), generation=5)
"""Progress that no attempt by sequences has committed."""


def test_first_claim_is_read_again_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch, progress=COPIED)
    writer = _acquired(site)
    assert not writer.acquired
    site.claim.set_result(CLAIM)
    assert writer.acquired
    assert site.keeps_metadata
    other = Site(monkeypatch, progress=COPIED)
    other.keeps_metadata = True
    assert _acquired(other).acquired, "one claim shows it for all partitions of the task"


BARE = Progress(offset=4, leader_epoch=None, source_cluster_id="", topic_id="")


@pytest.mark.parametrize(("claim", "kind"), [(BARE, FlowError), (None, ProgressChanged)], ids=["bare", "deleted"])
def test_claim_that_is_not_as_committed_ends_the_attempt(
    monkeypatch: pytest.MonkeyPatch, claim: Progress | None, kind: type[Exception]
) -> None:
    site = Site(monkeypatch, progress=COPIED)
    site.claim.set_result(claim)
    acquired = site.acquire()
    site.initialized.set_result(None)
    site.found.set_result(FoundPosition(COPIED, NO_TOTALS))
    assert isinstance(acquired.exception(0), kind)
    assert (site.writer.acquired, site.keeps_metadata) == (False, False)


def test_claim_that_was_read_before_the_fence_shows_that_metadata_is_kept(site: Site) -> None:
    """Of a flow that has copied before, no claim is read again."""
    assert _acquired(site).acquired
    assert not site.claim.done()


def test_few_bytes_are_committed_seldom_and_before_their_lag_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Site(monkeypatch).writer
    late_ms = [writer.commit_due_ms(since, 1_000, LAZY_BYTES - 1) - since for since in range(6_000)]
    assert 2_500 < max(late_ms) <= LAZY_INTERVALS * 1_000 < CAUGHT_UP_S * 1_000 - 1_000
    assert all(writer.commit_due_ms(since, 1_000, LAZY_BYTES) - since <= 1_000 for since in range(6_000))
    assert lazy_interval_ms(20) == 20 * LAZY_INTERVALS
    assert [lazy_interval_ms(interval) for interval in (1_700, 4_000)] == [LAZY_MS, 4_000]
