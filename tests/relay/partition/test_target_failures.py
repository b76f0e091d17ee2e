"""Failures of the target: expiries, backoffs, fences and aborts."""

from __future__ import annotations

import pytest

from mirror.errors import (
    BrokerError,
    CorruptBatch,
    DeliveryPhase,
    DeliveryTimeout,
    Fenced,
    KafkaError,
    KafkaTimeout,
    NeedsAbort,
    TransactionExpired,
)
from mirror.relay.model.ranges import OPEN_END, Outcome
from mirror.relay.partition.context import CopyHandle
from mirror.relay.partition.limits import ABORT_TIMEOUT_MS, FAILURE_BACKOFF_MS, MAX_ABORTS_IN_A_ROW
from mirror.relay.partition.states import CopyState
from tests.fakes.record_batches import batch, build
from tests.relay.copy_harness import CopyHarness, made
from tests.relay.hand_context import TIMES

HOUR = 3_600_000


def _late() -> DeliveryTimeout:
    return DeliveryTimeout("late", phase=DeliveryPhase.IN_FLIGHT, age_ms=10_000)


def _needs_abort(cause: KafkaError) -> NeedsAbort:
    error = NeedsAbort("abort it")
    error.__cause__ = cause
    return error


# --- expiry


def test_partition_that_cannot_be_fenced_expires() -> None:
    """blocked_transactional_id_expires_by_the_attempt_clock."""
    run = CopyHarness(5)
    run.advance(TIMES.delivery_timeout_ms)
    run.writer.opened.set_exception(KafkaTimeout("no coordinator"))
    run.context.run_until_idle()
    (expiry,) = run.ended_with(Outcome.EXPIRED).expiries
    assert (expiry["phase"], expiry["cause"], expiry["age_ms"]) == ("fencing", "coordinator", TIMES.delivery_timeout_ms)
    assert expiry["last_error"] == "no coordinator"


@pytest.mark.parametrize("atomic", [True, False])
def test_expired_batch_ends_the_attempt_and_no_later_batch_is_committed(atomic: bool) -> None:
    run = CopyHarness(10**6, atomic=atomic).opened(0)
    run.fetch(made(0), made(1), made(2), stable_end=10**6)
    run.ack(0)
    run.ack(2)
    run.fail(1, _late())
    if not atomic:
        assert run.committing == 1, "acknowledged batches are committed"
        run.commit()
    result = run.ended_with(Outcome.EXPIRED)
    assert result.end == (0 if atomic else 1)
    assert result.records == result.end
    assert str(result.error) == "t-0, the batch at offset 1: late"
    (expiry,) = result.expiries
    assert (expiry["start"], expiry["end"], expiry["phase"]) == (1, 2, "in flight")
    assert expiry["time_ms"] == run.clock.unix_ms()


def test_batch_that_expires_while_it_waits_for_memory_reports_its_offset() -> None:
    run = CopyHarness(5).opened(0)
    run.writer.send_error = _late()
    run.fetch(made(0))
    (expiry,) = run.ended_with(Outcome.EXPIRED).expiries
    assert expiry["start"] == 0


def test_commit_without_an_answer_expires_with_unknown_outcome() -> None:
    run = CopyHarness(1).opened(0)
    run.fetch(made(0))
    run.ack()
    assert run.writer.commits[-1].timeout_ms == TIMES.delivery_timeout_ms + 500
    run.advance(TIMES.delivery_timeout_ms)
    run.commit(KafkaTimeout("no coordinator"))
    result = run.ended_with(Outcome.EXPIRED)
    (expiry,) = result.expiries
    assert (expiry["phase"], expiry["age_ms"]) == ("committing", TIMES.delivery_timeout_ms)
    assert expiry["may_have_been_written"]
    assert result.records == 0, "their commit is not confirmed"


def test_commit_times_out_shortly_after_its_oldest_batch_expires() -> None:
    run = CopyHarness(10**6).opened(0)
    run.fetch(made(0), stable_end=10**6)
    run.advance(TIMES.commit_interval_ms)
    assert run.writer.commits[-1].timeout_ms == TIMES.delivery_timeout_ms - TIMES.commit_interval_ms + 500


def test_commit_that_fails_with_its_batch_reports_the_batch() -> None:
    run = CopyHarness(1).opened(0)
    run.fetch(made(0))
    run.writer.sent[0].answer(_late())
    run.writer.commits[-1].future.set_exception(_needs_abort(_late()))
    run.context.run_until_idle()
    assert run.ended_with(Outcome.EXPIRED).expiries[0]["start"] == 0


def test_cause_of_an_abort_is_reported_not_the_abort() -> None:
    run = CopyHarness(3).opened(0)
    run.fetch(made(0), made(1), made(2))
    run.ack(0)
    run.writer.sent[1].answer(NeedsAbort("the transaction is to be aborted"))
    run.writer.sent[2].answer(_late())
    run.context.run_until_idle()
    assert run.ended_with(Outcome.EXPIRED).expiries[0]["start"] == 2


def test_an_expired_transaction_is_an_expiry() -> None:
    run = CopyHarness(1).opened(0)
    run.fetch(made(0))
    run.ack()
    run.commit(TransactionExpired("outlived transaction.timeout.ms", 47))
    assert run.ended_with(Outcome.EXPIRED).expiries[0]["phase"] == "committing"


def test_expired_copy_is_retried_after_a_backoff_and_resumes_at_the_target_s_progress() -> None:
    run = CopyHarness(3).opened(0)
    run.context.retries_allowed = True
    backoffs = []
    for _ in range(3):
        run.fetch(made(0), made(1), made(2))
        run.fail(0, _late())
        assert run.copy.expired
        run.closed()
        attempts = len(run.context.writers)
        backoffs.append(run.back_off())
        assert len(run.context.writers) == attempts + 1
        run.opened(0)
    assert backoffs[0] < backoffs[1] < backoffs[2]
    run.fetch(made(0), made(1), made(2))
    run.ack_all()
    run.commit()
    assert not run.copy.expired
    result = run.ended_with(Outcome.COMPLETE)
    assert (result.retries, len(result.expiries), result.records, result.error) == (3, 3, 3, None)


def test_commit_of_unknown_outcome_that_succeeded_is_not_repeated() -> None:
    run = CopyHarness(1).opened(0)
    run.context.retries_allowed = True
    run.fetch(made(0))
    run.ack()
    run.commit(KafkaTimeout("..."))
    run.closed()
    run.advance(1_000)
    run.opened(1)
    assert run.ended_with(Outcome.COMPLETE).retries == 1
    assert sum(len(writer.sent) for writer in run.context.writers) == 1


def test_backoff_ends_when_no_healthy_copy_is_left() -> None:
    run = CopyHarness(3).opened(0)
    run.context.retries_allowed = True
    run.fetch(made(0))
    run.fail(0, _late())
    run.closed()
    run.context.retries_allowed = False
    run.advance(1_000)
    assert len(run.context.writers) == 1
    run.ended_with(Outcome.EXPIRED)


def test_abort_without_an_answer_is_left_to_the_next_attempt() -> None:
    run = CopyHarness(3).opened(0)
    run.fetch(made(0))
    run.fail(0, _late())
    run.advance(ABORT_TIMEOUT_MS - 1)
    assert not run.copy.done
    run.advance(1)
    assert run.result.outcome is Outcome.EXPIRED
    run.assert_nothing_held()


def test_batch_behind_a_skipped_one_is_sent_immediately() -> None:
    """A batch that needs no sending is not the first batch whose answer is awaited."""
    run = CopyHarness(9).opened(0)
    run.fetch(batch(build((), base_offset=0)), made(1))
    assert run.sent == [[b"1"]]


# --- fences


@pytest.mark.parametrize("when", ["opening", "sending", "committing"])
def test_fenced_copy_ends_with_that_outcome(when: str) -> None:
    run, fenced = CopyHarness(1), Fenced("another one took over", 90)
    run.context.retries_allowed = True
    if when == "opening":
        run.writer.opened.set_exception(fenced)
        run.context.run_until_idle()
    else:
        run.opened(0)
        run.fetch(made(0))
        if when == "sending":
            run.fail(0, fenced)
        else:
            run.ack()
            run.commit(_needs_abort(fenced))
    assert run.ended_with(Outcome.FENCED).records == 0
    assert len(run.context.writers) == 1


@pytest.mark.parametrize("in_doubt", [1, 3])
def test_fence_that_may_be_a_delayed_request_of_the_copy_is_retried_once_per_request(in_doubt: int) -> None:
    run = CopyHarness(1)
    run.context.retries_allowed = True
    run.writer.fences_in_doubt = in_doubt
    run.writer.opened.set_exception(KafkaTimeout("no coordinator"))
    run.context.run_until_idle()
    run.closed()
    run.back_off()
    for attempts in range(2, 3 + in_doubt):
        assert len(run.context.writers) == attempts
        run.writer.opened.set_exception(Fenced("another one took over", 90))
        run.context.run_until_idle()
        run.closed()
    run.ended_with(Outcome.FENCED)


@pytest.mark.parametrize(("after_ms", "outcome"), [(0, None), (TIMES.request_timeout_ms, Outcome.FENCED)])
def test_delayed_fence_may_follow_a_commit_but_only_within_the_request_timeout(
    after_ms: int, outcome: Outcome | None
) -> None:
    run = CopyHarness(9)
    run.writer.fences_in_doubt = 1
    run.opened(0)
    run.fetch(made(0), stable_end=1)
    run.ack()
    run.advance(TIMES.commit_min_interval_ms)
    run.commit()
    run.advance(after_ms)
    run.fetch(made(1))
    run.fail(1, Fenced("another one took over", 90))
    run.closed()
    assert (run.result.outcome if run.copy.done else None) is outcome


def test_copy_fenced_after_a_retry_ends_with_that_outcome() -> None:
    run = CopyHarness(1).opened(0)
    run.context.retries_allowed = True
    run.fetch(made(0))
    run.fail(0, _late())
    run.closed()
    run.back_off()
    run.writer.opened.set_exception(Fenced("another one took over", 90))
    run.context.run_until_idle()
    run.ended_with(Outcome.FENCED)


def _fenced(end: int = OPEN_END) -> CopyHarness:
    """The control record still names its run."""
    run = CopyHarness(end).opened(0)
    run.context.retries_allowed = run.context.names_run = True
    run.fetch(made(0))
    run.fail(0, Fenced("a late request of an attempt that has ended", 90))
    run.closed()
    return run


def test_followed_partition_is_fenced_again_while_the_control_record_names_its_run() -> None:
    run = _fenced()
    assert run.back_off() == FAILURE_BACKOFF_MS
    run.opened(0)
    run.fetch(made(0), stable_end=1)
    run.ack()
    run.advance(TIMES.commit_min_interval_ms)
    run.commit()
    run.copy.wind_up(run.clock.now(), immediately=False)
    run.context.run_until_idle()
    assert run.ended_with(Outcome.COMPLETE).retries == 1


def test_fenced_copy_waits_until_the_control_record_names_its_run_or_its_task_ends() -> None:
    run = _fenced()
    run.context.names_run = False
    run.advance(FAILURE_BACKOFF_MS + 10_000)
    assert len(run.context.writers) == 1
    run.context.retries_allowed = False
    run.copy.wind_up(run.clock.now(), immediately=False)
    run.ended_with(Outcome.FENCED)


def test_fenced_copy_of_a_bounded_range_ends() -> None:
    """Of a scheduled run, another attempt at the same task may copy the rest."""
    _fenced(9).ended_with(Outcome.FENCED)


def test_fenced_copy_has_no_progress_for_the_progress_topic() -> None:
    run = CopyHarness(9).opened_with(None).resolved(target_end=99)
    run.commit()
    assert run.copy.recorder.committed_progress is not None
    run.fetch(made(0))
    run.fail(0, Fenced("another one took over", 90))
    run.ended_with(Outcome.FENCED)
    assert run.copy.recorder.committed_progress is None


# --- aborts


@pytest.mark.parametrize("operation", ["batch", "commit"])
def test_producer_unknown_to_the_brokers_is_replaced_after_a_backoff_a_few_times(operation: str) -> None:
    run = CopyHarness(1).opened(0)
    backoffs = []
    for attempts in range(10):
        run.fetch(made(0))
        if operation == "batch":
            run.fail(0, BrokerError("unknown producer id", 49))
        else:
            run.ack()
            run.commit(BrokerError("unknown producer id", 49))
        run.closed()
        if run.copy.done:
            assert attempts == MAX_ABORTS_IN_A_ROW
            break
        backoffs.append(run.back_off())
        run.opened(0)
    assert 0 < backoffs[0] < backoffs[-1]
    prefix = "t-0, the batch at offset 0: " if operation == "batch" else "paris.t-0: progress was not committed: "
    assert run.ended_with(Outcome.FAILED).error == f"{prefix}unknown producer id"


def test_batch_damaged_in_memory_is_read_again_a_few_times() -> None:
    run = CopyHarness(1).opened(0)
    for attempts in range(10):
        run.fetch(made(0))
        run.fail(0, CorruptBatch("damaged in memory"))
        run.closed()
        if run.copy.done:
            assert attempts == MAX_ABORTS_IN_A_ROW
            break
        run.back_off()
        run.opened(0)
        assert run.context.read_position == (0, None)
    error = run.ended_with(Outcome.FAILED).error
    assert error == "t-0, the batch at offset 0: damaged in memory"


def test_aborts_are_counted_since_the_last_commit() -> None:
    run = CopyHarness(10**6).opened(0)
    for offset in range(2 * MAX_ABORTS_IN_A_ROW):
        run.fetch(made(offset), stable_end=10**6)
        run.fail(-1, BrokerError("unknown producer id", 49))
        run.closed()
        run.back_off()
        run.opened(offset)
        run.fetch(made(offset), stable_end=10**6)
        run.ack()
        run.advance(TIMES.commit_interval_ms)
        assert run.commit().offset == offset + 1


def test_backoff_ends_at_the_epoch_s_end() -> None:
    run = CopyHarness(1).opened(0)
    run.fetch(made(0))
    run.fail(0, BrokerError("unknown producer id", 49))
    run.closed()
    assert run.copy.state is CopyState.BACKING_OFF
    run.copy.wind_up(run.clock.now(), immediately=False)
    assert run.ended_with(Outcome.UNFINISHED).records == 0


def test_unexpected_error_fails_only_its_copy_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    run = CopyHarness(1).opened(0)
    run.writer.send_error = ValueError("odd")
    run.fetch(made(0))
    assert run.ended_with(Outcome.FAILED).error == "ValueError: odd"
    assert "t-0: unexpected error while copying; the other partitions continue" in caplog.text


def test_step_on_a_failed_answer_finds_the_failure() -> None:
    """The task was woken and stepped the copy before the failure was stored, and then waited on."""
    run = CopyHarness(1)

    def step_at_once(copy: CopyHandle, failed: bool) -> None:
        assert failed
        copy.step(run.clock.now())

    run.context.on_batch_answered = step_at_once  # type: ignore[method-assign]
    run.opened(0)
    run.fetch(made(0))
    run.writer.sent[0].answer(_late())
    assert run.copy.state is CopyState.ABORTING
