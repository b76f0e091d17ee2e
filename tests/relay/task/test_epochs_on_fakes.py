"""Partitions that are copied by sequences in one epoch after the other, in the same process or in another one."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from mirror.client import Admin, TopicPartition
from mirror.relay.model.ranges import OPEN_END, Outcome, RangeResult
from mirror.relay.partition import continuation
from mirror.relay.progress.committed import ProgressStore
from mirror.relay.task import running_copies as running
from mirror.relay.task.neighbours import Neighbours, folder_of, remove_folder
from mirror.runtime.clock import SystemClock
from mirror.wire.api import Api
from tests.fakes.record_batches import build
from tests.polling import eventually
from tests.relay.fake_pair import FLOW, FakePair

EPOCH_MS = 60_000
LEASE_MS = 40_000
TARGET = TopicPartition("paris.t", 0)


class JumpingClock(SystemClock):
    """The real time, except that days of the calendar pass when a test says so."""

    ahead_ms = 0

    def unix_ms(self) -> int:
        return super().unix_ms() + self.ahead_ms


class Stream:
    """The epochs of a stream with one partition; each one's copy runs on under its lease."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pair = FakePair(monkeypatch)
        self.pair.target.admin.broker_configs[""] = {"producer.id.expiration.ms": str(86_400_000)}
        self.clock = JumpingClock()
        monkeypatch.setattr("mirror.relay.task.copy_ranges.SystemClock", lambda: self.clock)
        self.written = 0
        self._pool = ThreadPoolExecutor()

    def write(self) -> None:
        """Write a record, whose value is its number."""
        self.pair.source.log("t", 0).append(build([b"%d" % self.written], timestamp=int(time.time() * 1000)))
        self.written += 1

    def begin(self, **policy: Any) -> Future[list[RangeResult]]:
        """Begin an epoch, in a thread."""
        options: dict[str, Any] = {"exactly_once_by": "sequences", "until_ms": self.clock.unix_ms() + EPOCH_MS}
        followed = replace(self.pair.range_of(), end=OPEN_END)
        return self._pool.submit(self.pair.copy_all, [followed], **options | {"lease_ms": LEASE_MS} | policy)

    def epoch(self, **policy: Any) -> RangeResult:
        """Run one that ends when all that was written is copied, and what earlier epochs have left is continued."""
        earlier = _leases() if running.running_copies.known else []
        results = self.begin(**policy)
        self.copied()
        eventually(
            lambda: not any(thread.is_alive() for thread in earlier), within_s=20, what="the end of earlier copies"
        )
        eventually(lambda: self.progress_offset == self.written, within_s=20, what="the progress")
        self.clock.ahead_ms += EPOCH_MS
        (result,) = results.result(30)
        return result

    def copied(self) -> None:
        """Wait until all is copied that was written."""
        eventually(lambda: len(self.pair.values()) >= self.written, within_s=20, what=f"{self.written} records")

    @property
    def progress_offset(self) -> int:
        return max((each[TARGET].offset for each in self.pair.target.groups.values() if TARGET in each), default=-1)

    @property
    def claimed_ms(self) -> int:
        """When the claim was written."""
        with Admin({"bootstrap.servers": self.pair.target.bootstrap}) as admin:
            progress = ProgressStore(admin, FLOW).read([TARGET])[TARGET]
        return progress.claimed_ms or progress.time_ms

    @property
    def fences(self) -> int:
        calls = self.pair.target.calls(Api.INIT_PRODUCER_ID)
        return sum(call.body.transactional_id is not None for call in calls)

    def check(self) -> None:
        """The target holds each record once, in order."""
        assert self.pair.values() == [b"%d" % number for number in range(self.written)]

    def end(self) -> None:
        """Let the copies that run on yield without a successor, and wait until they have ended."""
        while running.running_copies.known:
            (_, _, target), requests = next(iter(running.running_copies.known.items()))
            requests.ask(target)
            running.running_copies.remove(requests)
        self.clock.ahead_ms += EPOCH_MS + LEASE_MS
        eventually(lambda: not _leases(), within_s=20, what="the end of all leases")
        self._pool.shutdown()


def _leases() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "mirror-epoch"]


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    stream = Stream(monkeypatch)
    yield stream
    stream.end()


def test_partition_that_stays_in_its_process_is_fenced_once_and_counted_once(stream: Stream) -> None:
    stream.write()
    results = [stream.epoch()]
    for _ in range(2):
        stream.write()
        stream.copied()
        results.append(stream.epoch())
    stream.write()
    results.append(stream.epoch(lease_ms=0))
    assert {result.outcome for result in results} == {Outcome.COMPLETE}
    assert stream.fences == 1
    stream.check()
    assert sum(result.records for result in results) == stream.written == 4
    stamps = [(one.producer_epoch, one.base_sequence) for one in stream.pair.log().batches() if not one.is_control]
    assert stamps == [(stamps[0][0], number) for number in range(4)], "the sequences go on"


def test_idle_partition_is_continued_before_its_lease_ends(stream: Stream) -> None:
    stream.write()
    stream.epoch()
    stream.epoch()
    stream.write()
    stream.epoch(lease_ms=0)
    stream.check()
    assert stream.fences == 1


def test_idle_partition_whose_fence_is_old_is_fenced_once_it_has_something_to_send(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuation, "FENCE_VALID_MS", EPOCH_MS)
    stream.write()
    stream.epoch()
    stream.epoch()
    assert stream.fences == 1
    stream.write()
    stream.epoch(lease_ms=0)
    stream.check()
    assert stream.fences == 2


def test_copy_that_ends_with_its_epoch_is_not_asked_to_yield(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not, and the next attempt would fence although it has nothing to send."""
    stream.write()
    stream.epoch(lease_ms=0)
    fetches = len(stream.pair.source.calls(Api.FETCH))
    known: list[TopicPartition] = []
    monkeypatch.setattr(running.RunningCopies, "add", lambda _, *added: known.extend(added[2]))
    results = stream.begin()
    eventually(lambda: len(stream.pair.source.calls(Api.FETCH)) > fetches, within_s=20, what="a Fetch")
    stream.clock.ahead_ms += EPOCH_MS
    assert results.result(30)[0].outcome is Outcome.COMPLETE
    assert known == []


def test_continued_partition_has_its_claim_renewed_in_time(stream: Stream) -> None:
    """Brokers would forget it, although the lazy progress is young: only a fence writes it."""
    stream.write()
    stream.epoch(renew_ms=EPOCH_MS)
    claimed_ms = stream.claimed_ms
    stream.epoch(lease_ms=0, renew_ms=EPOCH_MS)
    assert stream.fences == 2
    assert stream.claimed_ms >= claimed_ms + EPOCH_MS
    stream.check()


def test_partition_that_goes_to_another_process_of_the_host_is_continued_there(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirror.relay.task.copy_ranges.Neighbours", partial(Neighbours, own=True))
    monkeypatch.setattr(running.RunningCopies, "take", lambda *_: None)
    run = f"run-{uuid.uuid4()}"
    stream.write()
    results = [stream.epoch(run=run)]
    for lease_ms in (LEASE_MS, 0):
        stream.write()
        stream.copied()
        results.append(stream.epoch(run=run, lease_ms=lease_ms or 1))
    stream.check()
    assert stream.fences == 1
    assert [result.records for result in results] == [1, 1, 1]
    assert folder_of(run) is not None
    remove_folder(run)


def _goes_elsewhere(_: Stream) -> None:
    running.running_copies.renew_lock()  # as in a process that was forked


def _claim_is_lost(stream: Stream) -> None:
    for offsets in stream.pair.target.groups.values():
        offsets.pop(TARGET, None)


@pytest.mark.parametrize("change", [_goes_elsewhere, _claim_is_lost])
def test_it_is_fenced_again_if_it_cannot_be_continued(stream: Stream, change: Callable[[Stream], None]) -> None:
    stream.write()
    stream.epoch()
    change(stream)
    stream.write()
    stream.copied()
    result = stream.epoch(lease_ms=0, start_over=True)
    assert result.outcome is Outcome.COMPLETE, result.error
    assert stream.fences == 2


def test_progress_of_the_continued_attempt_is_committed_without_what_was_counted(stream: Stream) -> None:
    stream.write()
    stream.epoch()
    stream.write()
    stream.copied()
    assert stream.epoch(lease_ms=0).records == 1
    with Admin({"bootstrap.servers": stream.pair.target.bootstrap}) as admin:
        progress = ProgressStore(admin, FLOW).read([TARGET])[TARGET]
    assert (progress.offset, progress.unreported.records) == (2, 0)


def test_attempt_whose_fence_is_an_hour_old_fences_again_before_it_sends(stream: Stream) -> None:
    stream.write()
    results = stream.begin(until_ms=stream.clock.unix_ms() + 10 * 3_600_000)
    stream.copied()
    stream.clock.ahead_ms += 2 * 3_600_000
    stream.write()
    stream.copied()
    assert stream.fences == 2
    eventually(lambda: stream.progress_offset == 2, within_s=20, what="the progress")
    stream.clock.ahead_ms += 10 * 3_600_000
    (result,) = results.result(30)
    assert (result.outcome, result.records, result.retries) == (Outcome.COMPLETE, 2, 0)
    stream.check()
