"""A copy that lives for months: what it forgets, what it renews, and what it says while it goes on."""

from __future__ import annotations

from typing import Any

import pytest

from mirror.errors import ConnectionFailed, RecordRejected
from mirror.relay.batches.output_batch import OutputBatch
from mirror.relay.batches.reencode import ReencodeReason
from mirror.relay.batches.remedies import Remedies
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.model.assignments import target_of
from mirror.relay.model.observer import NullObserver
from mirror.relay.model.ranges import OPEN_END, Outcome, Range
from mirror.relay.model.way import Way
from mirror.relay.partition.across_attempts.attempt_outcome import AttemptOutcome
from mirror.relay.partition.across_attempts.result_recorder import MAX_LISTED, ResultRecorder
from mirror.relay.partition.states import CopyState
from mirror.relay.progress.committed import Progress, renewal_ms
from tests.relay.copy_harness import CopyHarness, made
from tests.relay.partition.test_sequences import claimed, harness, young

HOUR = 3_600_000
PROGRESS = Progress(offset=7, leader_epoch=None, source_cluster_id="a", topic_id="id", time_ms=100 * HOUR)
RANGE = Range(
    flow="f", topic="t", target_topic="a.t", partition=0, start=0, end=OPEN_END, source_cluster_id="a", topic_id="id"
)
AGE = renewal_ms(target_of(RANGE), HOUR)


def followed(**options: Any) -> CopyHarness:
    run = CopyHarness(OPEN_END, **options)
    run.context.retries_allowed = True
    return run


# --- refusals


def test_what_was_refused_is_offered_again() -> None:
    """Whoever has forbidden it may allow it again, and no other copy of the partition would begin."""
    run = followed().opened(0)
    run.fetch(made(0), made(1), made(2))
    run.ack(0)
    run.fail(1, RecordRejected("no", 87))
    run.closed()
    run.opened(0)
    run.fetch(made(0), made(1), made(2))
    run.ack(0)
    assert run.commit().offset == 1
    run.closed()
    assert run.copy.result_at(run.clock.now()).outcome is Outcome.FAILED
    run.back_off()
    run.opened(1)
    run.fetch(made(1), made(2))
    run.ack_all()
    run.advance(2_000)
    assert run.commit().offset == 3
    assert not run.copy.failing


@pytest.mark.parametrize("caught_up", [True, False])
def test_a_copy_fails_until_it_has_committed_or_caught_up(*, caught_up: bool) -> None:
    run = followed().opened(0)
    assert not run.copy.failing
    run.fetch_fails(ConnectionFailed("gone"))
    run.closed()
    assert (run.copy.state, run.copy.failing) == (CopyState.BACKING_OFF, True)
    failed = run.copy.result_at(run.clock.now())
    assert (failed.outcome, failed.error) == (Outcome.FAILED, "gone")
    run.back_off()
    run.opened(0)
    assert run.copy.failing
    if caught_up:
        run.fetch(stable_end=0)
    else:
        run.fetch(made(0))
        run.ack_all()
        assert run.copy.failing, "nothing of it is committed"
        run.advance(2_000)
        run.commit()
    assert not run.copy.failing
    result = run.copy.result_at(run.clock.now())
    assert (result.outcome, result.error, result.timeline) == (Outcome.COMPLETE, None, None)


def test_new_limits_hold_for_what_is_encoded_from_now_on() -> None:
    run = followed(on_bad_timestamp="skip").opened(0)
    old = run.clock.unix_ms() - 2 * HOUR
    run.fetch(made(0, timestamp=old))
    assert len(run.sent) == 1, "no limit is known"
    run.copy.set_rules(TargetLimits(after_max_ms=HOUR, before_max_ms=HOUR), None)
    run.fetch(made(1, timestamp=old))
    assert len(run.sent) == 1
    run.ack_all()
    run.advance(2_000)
    run.commit()
    assert run.copy.result.skipped == {"bad timestamp": 1}


def test_remedies_are_bounded() -> None:
    remedies = Remedies(1_000)
    spans = []
    for offset in range(0, 60, 2):
        output = OutputBatch(offset, offset + 1, -1)
        remedies.apply(output, ReencodeReason.BAD_TIMESTAMP)
        remedies.skip_record(output)
        spans.append(remedies._until[ReencodeReason.BAD_TIMESTAMP] - offset)
        if offset % 10 == 0:
            remedies.forget_reach()
    assert max(spans) < 40, "one that doubled with each refusal would soon be all of the log"
    remedies.forget_skipped(58)
    assert remedies.skipped_offsets == {58}
    remedies.forget(1_000)
    assert remedies.at(0) == frozenset()


# --- progress


@pytest.mark.parametrize(
    ("progress", "passed_ms", "due"),
    [
        ({}, AGE - 1, False),
        ({}, AGE, True),
        ({"way": Way.SEQUENCES}, AGE - 1, False),
        ({"way": Way.SEQUENCES, "claimed_ms": 100 * HOUR - AGE}, 0, True),
        ({"way": Way.SEQUENCES, "claimed_ms": 100 * HOUR - AGE + 1}, 0, False),
    ],
)
def test_progress_and_claim_are_renewed_in_time(progress: dict[str, Any], passed_ms: int, *, due: bool) -> None:
    recorder = ResultRecorder(RANGE, lambda: 100 * HOUR + passed_ms, 0, NullObserver())
    recorder.begin_at(Progress(**{**{name: getattr(PROGRESS, name) for name in PROGRESS.__slots__}, **progress}))
    assert not recorder.is_renewal_due(HOUR), "it is not committed"
    recorder.is_committed = True
    assert recorder.is_renewal_due(HOUR) is due
    assert not recorder.is_renewal_due(0)


@pytest.mark.parametrize(("copied", "begins"), [(True, True), (False, False)])
def test_a_fence_that_ends_is_renewed_if_something_was_sent_under_it(*, copied: bool, begins: bool) -> None:
    """Otherwise the next record would wait for the fence. A partition that stays empty needs none."""
    run = harness().opened_with(claimed(0))
    run.fetch(young(run, 0))
    run.acquired()
    run.ack()
    if copied:
        run.advance(2_000)
        run.commit()
    run.writer.valid_until_ms = run.clock.unix_ms() + 1
    assert not run.copy.renew()
    run.writer.valid_until_ms -= 1
    assert run.copy.renew() is begins
    run.copy.step(run.clock.now())
    assert run.copy.state is (CopyState.ABORTING if begins else CopyState.COPYING)


# --- results


def test_lists_of_a_copy_that_lives_long_are_bounded() -> None:
    recorder = ResultRecorder(RANGE, lambda: 5, 0, NullObserver())
    for number in range(2 * MAX_LISTED):
        recorder.on_attempt_ended(AttemptOutcome(Outcome.EXPIRED, "e", {"time_ms": number}), 1, "e")
    assert [one["time_ms"] for one in recorder.result.expiries] == list(range(MAX_LISTED, 2 * MAX_LISTED))
