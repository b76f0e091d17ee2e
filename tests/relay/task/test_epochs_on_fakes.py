"""Partitions that are copied by sequences in one epoch after the other, in the same process or in another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from mirror.client import Admin, TopicPartition
from mirror.relay.model.ranges import Outcome
from mirror.relay.partition import retry
from mirror.relay.partition.writers import continuation
from mirror.relay.partition.writers.takeover import transactional_id
from mirror.relay.progress.committed import to_text
from mirror.relay.progress.control import RunControl, control_partition
from mirror.relay.task import epoch
from mirror.relay.task import running_copies as running
from mirror.relay.task.turns import AcquisitionTurns
from mirror.wire.api import Api
from tests.fakes.control import ServerCall
from tests.fakes.transactions import Answer
from tests.polling import eventually
from tests.relay.fake_pair import FLOW
from tests.relay.fake_stream import EPOCH_MS, TARGET, Stream


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


def test_what_is_committed_under_a_lease_is_counted_as_not_verified(stream: Stream) -> None:
    stream.write()
    results = [stream.epoch(verify="all")]
    for lease in ({}, {"lease_ms": 0}):
        stream.write()
        stream.copied()  # by the copy under its lease
        results.append(stream.epoch(verify="all", **lease))
    assert {result.outcome for result in results} == {Outcome.COMPLETE}
    found = [result.read_back for result in results]
    assert [one and one["batches"] for one in found] == [1, 0, 0]
    assert [one and one["unverified"] for one in found[1:]] == [{"committed between two epochs": 1}] * 2
    stream.check()


def test_idle_partition_is_continued_before_its_lease_ends(stream: Stream) -> None:
    stream.write()
    stream.epoch()
    stream.epoch()
    stream.write()
    stream.epoch(lease_ms=0)
    stream.check()
    assert stream.fences == 1


def test_partition_that_is_continued_counts_as_such_in_the_tasks_turns(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of many partitions are spread over some seconds (test_turns.py), fences are not."""
    begin, continued = AcquisitionTurns.begun, list[bool]()

    def begun(turns: AcquisitionTurns, call: Future[Any], now: int, *, continues: bool) -> None:
        continued.append(continues)
        begin(turns, call, now, continues=continues)

    monkeypatch.setattr(AcquisitionTurns, "begun", begun)
    stream.write()
    stream.epoch()
    stream.epoch(lease_ms=0)
    assert continued == [False, True]


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
    results = stream.epochs_in_other_processes(monkeypatch)
    assert stream.fences == 1
    assert [result.records for result in results] == [1, 1, 1]


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


def test_copy_that_was_fenced_after_the_plan_is_continued_and_fenced_again(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch on another host has fenced it, and has copied since."""
    monkeypatch.setattr(continuation, "CEDE_WITHIN_MS", 10 * EPOCH_MS)  # the clock jumps while it is asked
    stream.write()
    stream.epoch()
    plan = to_text(stream.progress)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(running.RunningCopies, "take", lambda *_: None)
        second = stream.begin(epoch=2, lease_ms=0)
        stream.write()
        stream.copied()
        eventually(lambda: stream.progress_offset == stream.written, within_s=20, what="the progress")
    third = stream.begin(epoch=3, lease_ms=1, progress=plan, until_ms=stream.clock.unix_ms() + 2 * EPOCH_MS)
    eventually(lambda: not running.running_copies.known, within_s=20, what="the question")
    stream.clock.ahead_ms += EPOCH_MS
    second.result(30)
    stream.write()
    stream.copied()
    assert stream.fences == 3
    stream.clock.ahead_ms += EPOCH_MS
    (result,) = third.result(30)
    assert (result.outcome, result.retries) == (Outcome.COMPLETE, 1), result.error
    stream.check()


@pytest.mark.parametrize("by", ["sequences", "transactions"])
def test_copy_that_a_late_request_of_the_epoch_before_has_fenced_is_fenced_again(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Its copy ended while it acquired the partition, and the coordinator executes its InitProducerId only now."""
    for module in (retry, epoch):
        monkeypatch.setattr(module, "FAILURE_BACKOFF_MS", 2_000)
    group, tp = control_partition(FLOW)
    record = RunControl(run="run-1", host="h", since_ms=1).to_offset()
    with Admin({"bootstrap.servers": stream.pair.target.bootstrap}) as admin:
        admin.commit_offset_async(group, tp, record, 5_000).result()
    late: list[Answer] = []

    def rule(call: ServerCall) -> None:
        if call.api is Api.END_TXN and not late:
            late.append(stream.pair.target.transactions.init(transactional_id(FLOW, TARGET), 60_000, -1, -1))

    stream.pair.target.control.add(rule)
    stream.write()
    result = stream.epoch(run="run-1", epoch=1, exactly_once_by=by, lease_ms=0)
    assert (result.outcome, result.retries) == (Outcome.COMPLETE, 1), result.error
    stream.check()


def test_progress_of_the_continued_attempt_is_committed_without_what_was_counted(stream: Stream) -> None:
    stream.write()
    stream.epoch()
    stream.write()
    stream.copied()
    assert stream.epoch(lease_ms=0).records == 1
    assert (stream.progress.offset, stream.progress.unreported.records) == (2, 0)


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
