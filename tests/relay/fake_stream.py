"""A stream with one partition between two clusters in memory: one epoch after the other, in this process."""

from __future__ import annotations

import threading
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from mirror.client import Admin, TopicPartition
from mirror.relay.model.ranges import OPEN_END, RangeResult
from mirror.relay.progress.committed import Progress, ProgressStore
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

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, exactly_once: bool = True) -> None:
        self.pair = FakePair(monkeypatch, exactly_once=exactly_once)
        self.pair.target.admin.broker_configs[""] = {"producer.id.expiration.ms": str(86_400_000)}
        self.clock = JumpingClock()
        monkeypatch.setattr("mirror.relay.task.copy_ranges.SystemClock", lambda: self.clock)
        self.written = 0
        self._pool = ThreadPoolExecutor()

    def write(self) -> None:
        """Write a record, whose value is its number."""
        self.pair.source.log("t", 0).append(build([b"%d" % self.written], timestamp=int(time.time() * 1000)))
        self.written += 1

    def begin(self, progress: str | None = None, **policy: Any) -> Future[list[RangeResult]]:
        """Begin an epoch, in a thread; ``progress`` is what its plan says."""
        by = {"exactly_once_by": "sequences"} if self.pair.exactly_once else {}
        options: dict[str, Any] = by | {"until_ms": self.clock.unix_ms() + EPOCH_MS}
        followed = replace(self.pair.range_of(), end=OPEN_END, progress=progress)
        return self._pool.submit(self.pair.copy_all, [followed], **options | {"lease_ms": LEASE_MS} | policy)

    def epoch(self, **policy: Any) -> RangeResult:
        """Run one that ends when all that was written is copied, and what earlier epochs have left is continued."""
        earlier = leases() if running.running_copies.known else []
        results = self.begin(**policy)
        self.copied()
        eventually(
            lambda: not any(thread.is_alive() for thread in earlier), within_s=20, what="the end of earlier copies"
        )
        eventually(lambda: self.progress_offset == self.written, within_s=20, what="the progress")
        self.clock.ahead_ms += EPOCH_MS
        (result,) = results.result(30)
        return result

    def epochs_in_other_processes(self, monkeypatch: pytest.MonkeyPatch) -> list[RangeResult]:
        """Run three epochs whose copies find each other as those of other processes of this host do."""
        monkeypatch.setattr("mirror.relay.task.copy_ranges.Neighbours", partial(Neighbours, own=True))
        monkeypatch.setattr(running.RunningCopies, "take", lambda *_: None)
        run = f"run-{uuid.uuid4()}"
        self.write()
        results = [self.epoch(run=run)]
        for lease_ms in (LEASE_MS, 1):
            self.write()
            self.copied()
            results.append(self.epoch(run=run, lease_ms=lease_ms))
        self.check()
        assert folder_of(run) is not None
        remove_folder(run)
        return results

    def copied(self) -> None:
        """Wait until all is copied that was written."""
        eventually(lambda: len(self.pair.values()) >= self.written, within_s=20, what=f"{self.written} records")

    @property
    def progress_offset(self) -> int:
        return max((each[TARGET].offset for each in self.pair.target.groups.values() if TARGET in each), default=-1)

    @property
    def progress(self) -> Progress:
        """As the next epoch would be planned."""
        with Admin({"bootstrap.servers": self.pair.target.bootstrap}) as admin:
            return ProgressStore(admin, FLOW).read([TARGET])[TARGET]

    @property
    def claimed_ms(self) -> int:
        """When the claim was written."""
        return self.progress.claimed_ms or self.progress.time_ms

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
        eventually(lambda: not leases(), within_s=20, what="the end of all leases")
        self._pool.shutdown()


def leases() -> list[threading.Thread]:
    """The threads of copies that run on, or of epochs that have not ended."""
    return [thread for thread in threading.enumerate() if thread.name == "mirror-epoch"]
