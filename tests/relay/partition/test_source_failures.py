"""Errors, damaged batches and silence of the source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.backoff import JITTER
from mirror.errors import AuthorizationFailed
from mirror.errors import OffsetOutOfRange as OutOfRange
from mirror.relay.model.ranges import OPEN_END, Outcome
from mirror.relay.partition.limits import MAX_REFETCHES
from mirror.relay.partition.states import CopyState
from mirror.wire.records import Batch
from tests.fakes.record_batches import batch, build
from tests.relay.copy_harness import CopyHarness, made, progress_at
from tests.relay.hand_context import TIMES


def test_source_error_is_raised_after_the_batches_before_it_are_committed() -> None:
    run = CopyHarness(3).opened(0)
    run.fetch(made(0))
    run.fetch_fails(AuthorizationFailed("no Read on topic t", 29))
    assert not run.copy.done
    run.ack()
    assert run.commit().offset == 1
    assert run.ended_with(Outcome.FAILED).error == "no Read on topic t"


@pytest.mark.parametrize("atomic", [True, False])
def test_neither_records_nor_progress_pass_a_corrupt_batch(atomic: bool) -> None:
    """The whole range was fetched, but its end must not count as reached."""
    damaged = build((b"1",), base_offset=1)
    damaged[-1] ^= 1
    run = CopyHarness(3, atomic=atomic).opened(0)
    run.fetch(made(0), batch(damaged), made(2))
    run.ack_all()
    assert run.commit().offset == 1
    for _ in range(MAX_REFETCHES):
        assert run.context.read_position == (1, 0)
        run.fetch(batch(damaged), made(2))
    result = run.ended_with(Outcome.FAILED)
    assert (result.end, run.sent) == (1, [[b"0"]])
    error, advice = str(result.error).split("; ")
    where = "t-0: nothing from offset 1 on was copied"
    assert error.startswith(f"{where}: the batch at offset 1 (69 bytes) is corrupt: its CRC-32C is ")
    assert advice == "mend the source's log, or make another replica the leader"


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("first", [True, False], ids=["the first copy", "a later one"])
def test_batch_damaged_in_transit_is_fetched_again(atomic: bool, first: bool) -> None:
    damaged = build((b"1",), base_offset=1)
    damaged[-1] ^= 1
    run = CopyHarness(4, atomic=atomic).opened_with(None if first else progress_at(0))
    if first:
        run.resolved()
        run.commit()
    run.fetch(made(0), batch(damaged), made(2))
    run.ack_all()
    run.commit()
    assert run.copy.wants_more
    run.fetch(made(1), made(2))
    run.ack_all()
    damaged = build((b"3",), base_offset=3)
    damaged[-1] ^= 1
    for _ in range(MAX_REFETCHES):
        run.fetch(batch(damaged))
        run.ack_all()
        if run.committing:
            run.commit()
    run.fetch(made(3))
    run.ack_all()
    assert run.commit().offset == 4
    run.ended_with(Outcome.COMPLETE)
    assert run.sent == [[b"%d" % number] for number in range(4)]


def _damaged(base: int) -> Batch:
    data = build((b"%d" % base,), base_offset=base)
    data[-1] ^= 1
    return batch(data)


def test_batch_damaged_at_the_end_of_a_task_is_left_to_the_next_one() -> None:
    """At its end nothing is read any more: the task would wait for the wind-up's whole time."""
    run = CopyHarness(4).opened()
    run.fetch(made(0), _damaged(1))
    run.ack_all()
    assert run.committing == 1
    run.copy.wind_up(run.clock.now(), immediately=False)
    run.commit()
    assert run.ended_with(Outcome.UNFINISHED).end == 1


def test_codec_error_fails_the_copy() -> None:
    run = CopyHarness(3, headers=(("h", b""),)).opened(0)
    run.context.reencodes_by_hand = True
    run.fetch(made(0))
    run.context.reencodings[-1][2].set_exception(TypeError("odd record"))
    run.context.run_until_idle()
    assert "odd record" in str(run.ended_with(Outcome.FAILED).error)


def test_silent_source_fails_the_copy_with_its_last_error() -> None:
    run = CopyHarness(3).opened(0)
    run.context.source_error_text = ": no route"
    run.advance(TIMES.stall_ms - 1)
    assert run.copy.state is CopyState.COPYING
    run.advance(1)
    run.source_checked(end=3)
    assert run.ended_with(Outcome.FAILED).error == "t-0: nothing came from the source for 5000 ms: no route"


def test_silent_source_that_ends_before_the_plan_was_truncated() -> None:
    run = CopyHarness(10).opened(5)
    run.advance(TIMES.stall_ms)
    run.source_checked(end=5)
    error = str(run.ended_with(Outcome.FAILED).error)
    assert "the source's log was cut back to 5" in error
    assert 'on-gap = "skip"' in error


def test_range_of_a_truncated_source_is_copied_up_to_the_new_end() -> None:
    run = CopyHarness(10, on_gap="skip").opened(5)
    run.advance(TIMES.stall_ms)
    run.source_checked(end=8)
    assert run.commit().offset == 5
    assert run.context.read_position == (5, None)
    run.fetch(made(5, 3))
    run.ack_all()
    run.commit()
    result = run.ended_with(Outcome.COMPLETE)
    assert (result.end, result.records, result.gaps.get("truncated", 0)) == (8, 3, 0)


def test_truncated_source_that_is_silent_again_fails_the_copy() -> None:
    run = CopyHarness(10, on_gap="skip").opened(5)
    run.advance(TIMES.stall_ms)
    run.source_checked(end=8)
    run.commit()
    run.advance(TIMES.stall_ms)
    run.source_checked(end=8)
    assert "nothing came from the source" in str(run.ended_with(Outcome.FAILED).error)


def test_explained_silence_does_not_fail_a_later_check() -> None:
    run = CopyHarness(10, on_gap="skip").opened(5)
    run.advance(TIMES.stall_ms)
    run.source_checked(end=8)
    run.commit()
    run.fetch_fails(OutOfRange("gone", 1))
    run.source_checked(end=8)
    assert run.copy.state is CopyState.COPYING
    assert run.context.read_position == (5, None)


def test_silence_of_one_attempt_does_not_fail_the_next() -> None:
    """A followed partition failed again for it, although the source had answered and there was no gap."""
    run = CopyHarness(OPEN_END).opened(0)
    run.context.retries_allowed = True
    run.advance(TIMES.stall_ms)
    run.source_checked(end=0)
    run.closed()
    run.back_off()
    run.opened(0)
    run.fetch_fails(OutOfRange("gone", 1))
    run.source_checked(end=0)
    assert run.copy.state is CopyState.COPYING
    assert run.context.read_position == (0, None)


def test_followed_partition_that_keeps_failing_waits_up_to_a_minute_until_it_commits() -> None:
    """10,000 of them, each every 15 s, were 670 attempts a second."""
    run = CopyHarness(OPEN_END).opened(0)
    run.context.retries_allowed = True

    def failed() -> int:
        run.fetch_fails(AuthorizationFailed("no Read on the topic", 29))
        run.closed()
        backoff_ms = run.back_off()
        run.opened(0)
        return backoff_ms

    expected = [15_000, 30_000, 60_000, 60_000]
    assert [failed() for _ in expected] == [pytest.approx(one, rel=JITTER) for one in expected]
    run.fetch(made(0), stable_end=1)
    run.ack()
    run.advance(TIMES.commit_interval_ms)
    assert run.commit().offset == 1
    assert failed() == pytest.approx(15_000, rel=JITTER)


@pytest.mark.parametrize("atomic", [True, False])
def test_silent_source_is_checked_only_when_everything_is_committed(
    atomic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches acknowledged in a transaction that is still open would be sent in it again."""
    monkeypatch.setattr("tests.relay.hand_context.TIMES", replace(TIMES, commit_interval_ms=2 * TIMES.stall_ms))
    run = CopyHarness(10, atomic=atomic, on_gap="skip").opened(0)
    run.fetch(made(0), stable_end=10)
    run.ack()
    run.advance(2 * TIMES.stall_ms)
    assert run.commit().offset == 1
    if atomic:
        run.advance(TIMES.stall_ms)  # nothing was fetched while the transaction ended
    run.source_checked(end=1)
    assert run.commit().offset == 1
    assert run.ended_with(Outcome.COMPLETE).records == 1
    assert run.sent == [[b"0"]]


def test_copy_that_awaits_target_does_not_stall() -> None:
    run = CopyHarness(10).opened(0)
    run.fetch(made(0), stable_end=10)
    run.advance(TIMES.stall_ms * 2 - 500)
    assert run.copy.state is CopyState.COPYING
    run.ack()
    run.commit()
    assert run.copy.state is CopyState.COPYING, "nothing was fetched all that time"
    run.advance(TIMES.stall_ms - 1)
    assert run.copy.state is CopyState.COPYING
    run.advance(1)
    run.source_checked(end=10)
    run.ended_with(Outcome.FAILED)


def test_source_that_is_not_fetched_does_not_stall() -> None:
    run = CopyHarness(OPEN_END).opened(0)
    run.clock.advance(TIMES.stall_ms - 1)
    run.source_answers()
    run.advance(TIMES.stall_ms - 1)
    assert run.copy.state is CopyState.COPYING
