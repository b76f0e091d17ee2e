"""Partitions that are copied at least once in one epoch after the other, in the same process or in another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.relay.task import running_copies as running
from tests.polling import eventually
from tests.relay.fake_stream import EPOCH_MS, TARGET, Stream, leases


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    stream = Stream(monkeypatch, exactly_once=False)
    yield stream
    stream.end()


def test_records_between_two_epochs_are_copied_once_in_order_and_counted_once(stream: Stream) -> None:
    stream.write()
    results = [stream.epoch()]
    for _ in range(2):
        stream.write()
        stream.copied()  # under the lease: no epoch runs now
        results.append(stream.epoch())
    stream.write()
    results.append(stream.epoch(lease_ms=0))
    assert {result.outcome for result in results} == {Outcome.COMPLETE}
    stream.check()
    assert [result.records for result in results] == [1, 1, 1, 1]
    assert (stream.progress.offset, stream.progress.unreported.records) == (4, 0)


def test_idle_partition_is_continued_and_copies_under_its_lease(stream: Stream) -> None:
    stream.epoch()
    stream.epoch()
    stream.write()
    stream.copied()
    assert stream.epoch(lease_ms=0).records == 1
    stream.check()


def test_partition_that_goes_to_another_process_of_the_host_is_continued_there(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = stream.epochs_in_other_processes(monkeypatch)
    assert [result.records for result in results] == [1, 1, 1]


def test_copy_that_cannot_be_asked_ends_with_its_next_commit(stream: Stream) -> None:
    """The next epoch's copy runs on another host. Both copy until then, and nothing is lost."""
    stream.write()
    stream.epoch()
    (earlier,) = leases()
    committed_ms = stream.progress.time_ms
    running.running_copies.renew_lock()  # as in another process
    results = stream.begin()
    eventually(lambda: stream.progress.time_ms > committed_ms, within_s=20, what="the claim of the next copy")
    assert earlier.is_alive(), "it has nothing to commit"
    stream.write()
    eventually(lambda: not earlier.is_alive(), within_s=20, what="the end of the earlier copy")
    stream.write()
    eventually(lambda: stream.progress_offset == stream.written, within_s=20, what="the progress")
    stream.clock.ahead_ms += EPOCH_MS
    (result,) = results.result(30)
    assert (result.outcome, result.records) == (Outcome.COMPLETE, 2), "the earlier one's record is not counted"
    values = stream.pair.values()
    assert sorted(set(values)) == [b"0", b"1", b"2"]
    assert values.count(b"2") == 1, "the earlier copy has ended"


def _progress_is_forgotten(stream: Stream) -> None:
    for offsets in stream.pair.target.groups.values():
        offsets.pop(TARGET, None)


@pytest.mark.parametrize("change", [lambda _: running.running_copies.renew_lock(), _progress_is_forgotten])
def test_copy_starts_over_though_an_earlier_one_runs(stream: Stream, change: Callable[[Stream], None]) -> None:
    stream.write()
    stream.epoch()
    change(stream)
    stream.write()
    stream.copied()
    result = stream.epoch(lease_ms=0, start_over=True)
    assert result.outcome is Outcome.COMPLETE, result.error
    assert set(stream.pair.values()) == {b"0", b"1"}
