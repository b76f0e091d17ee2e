"""An attempt under its lease that yields its partition to the next epoch's attempt on the same host."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pytest

from mirror.errors import ClientClosed, OffsetOutOfRange
from mirror.producer.batch.queue import AdoptedState, ProducerId
from mirror.relay.batches.way_rules import WayRules
from mirror.relay.model.ranges import OPEN_END, Outcome
from mirror.relay.model.way import Way
from mirror.relay.partition.states import CopyState
from mirror.relay.partition.writers.continuation import (
    CEDE_WITHIN_MS,
    FENCE_VALID_MS,
    Continuation,
    NothingToContinue,
    YieldedFence,
    base_of,
    fence_valid_ms,
    found_at,
)
from mirror.relay.progress.committed import NO_TOTALS, Progress, ProgressChanged, ProgressTotals, latest_of
from mirror.relay.progress.target_log import TargetMark
from tests.relay.copy_harness import CopyHarness, made, progress_at

MARK = TargetMark(topic_id="a", end=50, leader_epoch=3, producer_id=7)
VALID_MS = 600_000
FENCE = YieldedFence(AdoptedState(ProducerId(7, 3), 5), 2, 500)


def claimed(offset: int, **fields: object) -> Progress:
    return replace(
        progress_at(offset),
        way=Way.SEQUENCES,
        generation=5,
        target=MARK,
        producer_id=7,
        attempt=2,
        **fields,  # type: ignore[arg-type]
    )


def harness() -> CopyHarness:
    return CopyHarness(OPEN_END, rules=WayRules(mode="sequences", expiration_ms=86_400_000)).opened_with(claimed(0))


def fetch(run: CopyHarness, offset: int) -> None:
    run.fetch(made(offset, timestamp=run.clock.unix_ms()))


def leased() -> CopyHarness:
    """A copy that has copied a record, and goes on under its lease."""
    run = harness()
    fetch(run, 0)
    run.acquired()
    run.ack()
    run.advance(1_000)
    run.commit()
    run.copy.hand_over(run.clock.now())
    return run


def cede(run: CopyHarness) -> Future[Continuation | None]:
    answer: Future[Continuation | None] = Future()
    run.copy.cede(answer, run.clock.now())
    run.context.run_until_idle()
    return answer


def test_attempt_under_its_lease_yields_its_exact_position_and_sends_nothing_more() -> None:
    run = leased()
    fetch(run, 1)
    run.ack()
    answer = cede(run)
    ((progress, yielded),) = run.writer.yielded
    assert (progress.offset, progress.unreported.records) == (2, 1)
    assert run.context.read_position is None
    assert not answer.done()
    yielded.set_result(Continuation(progress, FENCE))
    assert answer.result(0) == Continuation(progress, FENCE)
    assert run.committing is None, "a late commit would be behind that of the next attempt"
    run.context.run_until_idle()
    assert run.ended_with(Outcome.FENCED).records == 1


def test_batch_without_an_outcome_is_awaited() -> None:
    run = leased()
    fetch(run, 1)
    answer = cede(run)
    assert not run.writer.yielded
    run.advance(CEDE_WITHIN_MS // 2)
    run.fetch(made(2, timestamp=run.clock.unix_ms()), offset=2)
    run.ack()
    assert len(run.sent) == 2, "it sends nothing more"
    assert run.writer.yielded[0][0].offset == 2
    assert not answer.done()


def test_commit_in_flight_is_awaited() -> None:
    """It could arrive after one of the next attempt."""
    run = leased()
    fetch(run, 1)
    run.ack()
    run.advance(1_000)
    assert run.committing == 2
    cede(run)
    assert not run.writer.yielded
    run.commit()
    assert run.writer.yielded


def test_comparison_with_a_new_leader_s_log_is_awaited() -> None:
    """The new leader may lack what the former one has acknowledged."""
    run, answer = compared()
    assert not run.writer.yielded
    run.context.comparisons[-1][1].set_result(replace(MARK, end=1_001, leader_epoch=4))
    run.context.run_until_idle()
    assert run.writer.yielded
    assert not answer.done()


def compared() -> tuple[CopyHarness, Future[Continuation | None]]:
    """A copy under its lease that is to yield while a new leader of the target is compared."""
    run = leased()
    run.context.leader = (2, 4)
    run.copy.step(run.clock.now())
    assert len(run.context.comparisons) == 1
    return run, cede(run)


def test_next_attempt_fences_if_a_new_leader_lacks_what_was_acknowledged() -> None:
    run, answer = compared()
    run.context.comparisons[-1][1].set_result(None)
    run.context.run_until_idle()
    assert answer.result(0) is None
    assert not run.writer.yielded


@pytest.mark.parametrize("offset", [0, 1_000])
def test_next_attempt_fences_if_the_log_has_lost_what_was_acknowledged(offset: int) -> None:
    run = leased()
    fetch(run, 1)
    answer = cede(run)
    run.ack(1, base_offset=offset)
    assert answer.result(0) is None
    assert not run.writer.yielded


def test_attempt_that_says_that_it_has_ended_yields_nothing() -> None:
    """A later attempt would trust this commit, and would not search for what the next one appends."""
    run = CopyHarness(OPEN_END, rules=WayRules(mode="auto", expiration_ms=86_400_000)).opened_with(claimed(0))
    fetch(run, 0)
    run.acquired()
    run.ack()
    run.advance(1_000)
    run.commit()
    run.copy.hand_over(run.clock.now())
    fetch(run, 1)
    run.ack()
    run.fetch(made(2, timestamp=0))
    assert run.writer.commits[-1].progress.ended, "the next batch goes in a transaction"
    assert cede(run).result(0) is None
    assert run.commit().offset == 2
    assert not run.writer.yielded
    run.ended_with(Outcome.UNFINISHED)


def test_next_attempt_fences_if_an_outcome_takes_too_long() -> None:
    run = leased()
    fetch(run, 1)
    answer = cede(run)
    run.advance(CEDE_WITHIN_MS)
    assert answer.result(0) is None
    run.ended_with(Outcome.FENCED)
    assert not run.writer.yielded


def test_next_attempt_fences_if_a_batch_fails_meanwhile() -> None:
    run = leased()
    fetch(run, 1)
    answer = cede(run)
    run.fail(0 if len(run.sent) == 1 else 1, ClientClosed("closed"))
    assert answer.result(0) is None


def test_next_attempt_fences_if_the_identity_cannot_be_yielded() -> None:
    run = leased()
    answer = cede(run)
    run.writer.yielded[0][1].set_exception(ClientClosed("closed"))
    assert answer.result(0) is None


def test_attempt_before_its_epoch_s_end_yields_nothing() -> None:
    """Its result would not count what it has sent."""
    run = harness()
    fetch(run, 0)
    run.acquired()
    assert cede(run).result(0) is None
    run.ack()
    fetch(run, 1)
    assert len(run.sent) == 2, "it copies on"


def test_attempt_that_continues_another_one_asks_it_once_its_source_has_answered() -> None:
    """Also if it has nothing to send: the lease of the other one ends."""
    run = CopyHarness(OPEN_END, rules=WayRules(mode="sequences", expiration_ms=86_400_000))
    run.writer.continues = True
    run.opened_with(claimed(4))
    assert not run.writer.acquisitions
    run.fetch(stable_end=4)
    assert len(run.writer.acquisitions) == 1


def test_attempt_that_continues_nothing_fences_once_it_has_something_to_send() -> None:
    run = CopyHarness(OPEN_END, rules=WayRules(mode="sequences", expiration_ms=86_400_000))
    run.writer.continues = True
    run.opened_with(claimed(4))
    run.fetch(stable_end=4)
    ((_, asked),) = run.writer.acquisitions
    run.writer.continues = False
    asked.set_exception(NothingToContinue())
    run.context.run_until_idle()
    assert len(run.writer.acquisitions) == 1
    fetch(run, 4)
    assert len(run.writer.acquisitions) == 2
    run.acquired()
    assert len(run.sent) == 1


def test_way_does_not_change_while_an_earlier_attempt_is_asked() -> None:
    """A request of the acquisition that is still in flight could fence the attempt in transactions."""
    run = CopyHarness(OPEN_END, rules=WayRules(mode="auto", expiration_ms=86_400_000))
    run.writer.continues = True
    run.opened_with(claimed(4))
    run.fetch(made(4, timestamp=0))
    ((_, asked),) = run.writer.acquisitions
    assert len(run.context.writers) == 1
    assert run.writer.closed is None
    run.writer.continues = False
    asked.set_exception(NothingToContinue())
    run.context.run_until_idle()
    run.closed()
    assert run.writer.way is Way.TRANSACTIONS


def test_fence_that_may_be_forgotten_sends_nothing_more() -> None:
    run = harness()
    fetch(run, 0)
    run.acquired()
    run.ack()
    run.writer.valid_until_ms = run.clock.unix_ms()
    fetch(run, 1)
    assert len(run.sent) == 1
    run.commit()
    run.closed()
    assert len(run.context.writers) == 2, "another attempt fences again"
    assert run.copy.result.retries == 0


# --- at least once


def leased_at_least_once() -> CopyHarness:
    """A copy that has copied a record, and goes on under its lease."""
    run = CopyHarness(OPEN_END, atomic=False).opened(0)
    run.fetch(made(0))
    run.ack()
    run.advance(1_000)
    run.commit()
    run.copy.hand_over(run.clock.now())
    return run


def test_at_least_once_the_exact_position_is_yielded_with_the_counts_that_no_result_has() -> None:
    run = leased_at_least_once()
    run.fetch(made(1))
    answer = cede(run)
    assert not run.writer.yielded
    run.ack()
    ((progress, yielded),) = run.writer.yielded
    assert (progress.offset, progress.unreported.records) == (2, 1)
    yielded.set_result(Continuation(progress, None))
    assert answer.result(0) == Continuation(progress, None)
    assert run.committing is None, "a late commit would move the progress back"
    run.context.run_until_idle()
    assert run.ended_with(Outcome.FENCED).records == 1


def test_at_least_once_copy_that_cannot_yield_now_ends() -> None:
    """Nothing fences it."""
    run = leased_at_least_once()
    run.fetch_fails(OffsetOutOfRange("gone", 1))
    assert run.copy.state is CopyState.CHECKING_SOURCE
    assert cede(run).result(0) is None
    run.closed()
    assert run.copy.done


def test_copy_under_its_lease_ends_once_another_attempt_has_committed() -> None:
    run = leased_at_least_once()
    run.fetch(made(1))
    run.ack()
    run.advance(1_000)
    run.commit(ProgressChanged())
    run.commit(ProgressChanged())
    result = run.ended_with(Outcome.FENCED)
    assert (result.records, len(run.context.writers)) == (1, 1)
    assert run.copy.recorder.committed_progress is None, "the progress topic gets no record"


# --- whether a continuation serves

OPENED = claimed(4, unreported=ProgressTotals(2, 1, 20), time_ms=1_000)
EARLIER = Continuation(replace(OPENED, offset=6, unreported=ProgressTotals(5, 3, 50), way=Way.TRANSACTIONS), FENCE)


def test_it_begins_behind_the_earlier_attempt_with_the_counts_that_no_result_has() -> None:
    found = found_at(EARLIER, OPENED, replace(OPENED, time_ms=2_000), VALID_MS)
    assert found is not None
    assert (found.progress.offset, found.progress.unreported) == (6, ProgressTotals(5, 3, 50))
    assert (found.appended, found.progress.way, found.progress.producer_id) == (NO_TOTALS, Way.SEQUENCES, 7)


def test_another_attempt_s_claim_counts_before_lazy_progress_that_is_committed_late() -> None:
    """An attempt on another host has fenced this one, which has then committed more than that claim says."""
    lazy = replace(OPENED, offset=6)
    claim = replace(OPENED, attempt=3)
    assert found_at(EARLIER, latest_of(claim, lazy), replace(OPENED, time_ms=2_000), VALID_MS) is None
    assert found_at(EARLIER, latest_of(OPENED, lazy), replace(OPENED, time_ms=2_000), VALID_MS) is not None


def test_it_continues_under_its_own_producer_id_behind_lazy_progress_of_an_earlier_one() -> None:
    """The earlier attempt has committed nothing yet; the one before it did so late."""
    lazy = replace(OPENED, offset=5, producer_id=6, attempt=9)
    found = found_at(EARLIER, latest_of(OPENED, lazy), replace(OPENED, time_ms=2_000), VALID_MS)
    assert found is not None
    assert (found.progress.offset, found.progress.producer_id) == (6, 7)


@pytest.mark.parametrize(
    ("opened", "resolved"),
    [
        pytest.param(None, OPENED, id="no progress"),
        pytest.param(replace(OPENED, way=Way.TRANSACTIONS), OPENED, id="a claim of transactions"),
        pytest.param(replace(OPENED, producer_id=8), OPENED, id="a claim of another producer"),
        pytest.param(replace(OPENED, attempt=3), OPENED, id="a claim of another attempt"),
        pytest.param(
            replace(OPENED, claimed_by=(7, 3)), OPENED, id="lazy progress that is later than the claim of another"
        ),
        pytest.param(replace(OPENED, ended=True), OPENED, id="an attempt that has ended"),
        pytest.param(replace(OPENED, generation=6), replace(OPENED, generation=6), id="started over"),
        pytest.param(OPENED, replace(OPENED, generation=6), id="starts over"),
        pytest.param(replace(OPENED, topic_id="other"), OPENED, id="another source topic"),
        pytest.param(OPENED, replace(OPENED, source_cluster_id="rome"), id="another source cluster"),
        pytest.param(replace(OPENED, offset=7), OPENED, id="another attempt is further"),
        pytest.param(OPENED, replace(OPENED, time_ms=500 + VALID_MS), id="an old fence"),
        pytest.param(replace(OPENED, claimed_ms=400), replace(OPENED, time_ms=400 + VALID_MS), id="an old claim"),
        pytest.param(OPENED, replace(OPENED, time_ms=499), id="a clock that went back"),
    ],
)
def test_it_fences_if_the_claim_is_not_that_of_the_earlier_attempt(opened: Progress | None, resolved: Progress) -> None:
    assert found_at(EARLIER, OPENED, replace(OPENED, time_ms=2_000), VALID_MS) is not None
    assert found_at(EARLIER, opened, resolved, VALID_MS) is None


@pytest.mark.parametrize(("found_in", "resolved_in"), [(6, 5), (5, 6), (6, 6)])
def test_it_does_not_resume_at_progress_of_another_generation(found_in: int, resolved_in: int) -> None:
    """The copy has started over, elsewhere or here: progress from before that must not count."""
    found = replace(OPENED, offset=7)
    assert base_of(OPENED, OPENED, found).offset == 7
    with pytest.raises(ProgressChanged):
        base_of(OPENED, replace(OPENED, generation=resolved_in), replace(found, generation=found_in))


@pytest.mark.parametrize(("renew_ms", "valid_ms"), [(0, FENCE_VALID_MS), (8_500, 8_500), (86_400_000, FENCE_VALID_MS)])
def test_fence_serves_no_longer_than_its_claim(renew_ms: int, valid_ms: int) -> None:
    assert fence_valid_ms(renew_ms) == valid_ms
