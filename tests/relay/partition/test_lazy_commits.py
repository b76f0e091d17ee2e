"""Commits of lazy progress that fail: which of them end the attempt, and when the others are repeated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.errors import AuthorizationFailed, BrokerError, KafkaError, KafkaTimeout
from mirror.relay.model.ranges import Outcome
from tests.relay.copy_harness import CopyHarness, made
from tests.relay.partition.test_sequences import DAY_MS, claimed, harness, young

REFUSED = AuthorizationFailed("no Read on the group", 30)
ODD = BrokerError("odd", 99)


def sent_one(end: int = 10) -> CopyHarness:
    """One batch is acknowledged, and not committed."""
    run = harness(end).opened_with(claimed(0))
    run.fetch(young(run, 0))
    run.acquired()
    run.ack()
    return run


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        pytest.param(REFUSED, Outcome.FAILED, id="refused"),
        pytest.param(KafkaTimeout("the coordinator is away"), Outcome.EXPIRED, id="timeout"),
    ],
)
def test_first_progress_that_is_not_committed_ends_the_copy(error: KafkaError, outcome: Outcome) -> None:
    """Otherwise it would be repeated as fast as brokers refuse it, while the copy goes on without progress."""
    run = harness(10).opened_with(None).resolved()
    run.acquired()
    run.commit(error)
    run.commit(error)
    assert str(error) in (run.ended_with(outcome).error or "")
    assert len(run.writer.commits) == 2, "once more when the attempt ends"


def test_permission_that_is_taken_away_ends_the_copy() -> None:
    run = sent_one()
    run.advance(1_000)
    run.commit(REFUSED)
    run.commit(REFUSED)
    assert "progress was not committed: " in (run.ended_with(Outcome.FAILED).error or "")
    assert len(run.writer.commits) == 2, "once more when the attempt ends"


@pytest.mark.parametrize(("index_ms", "due_ms"), [(0, 1_000), (250, 250), (2_500, 1_000)])
def test_progress_is_committed_as_often_as_the_index_is_written(index_ms: int, due_ms: int) -> None:
    """Groups wait for both, however few bytes were sent."""
    run = harness(10)
    run.context.timeouts = replace(run.context.timeouts, index_interval_ms=index_ms)
    run.opened_with(claimed(0))
    run.fetch(young(run, 0))
    run.acquired()
    run.ack()
    run.advance(due_ms - 1)
    assert not run.writer.commits
    run.advance(1)
    assert run.commit().offset == 1


def test_commit_that_fails_is_repeated_after_an_interval() -> None:
    run = sent_one()
    run.advance(1_000)
    run.commit(ODD)
    run.advance(999)
    assert len(run.writer.commits) == 1
    run.advance(1_000)
    assert run.commit().offset == 1


def test_commit_that_fails_at_the_epoch_s_end_is_not_repeated_at_once() -> None:
    run = sent_one()
    run.copy.wind_up(run.clock.now(), immediately=False)
    run.context.run_until_idle()
    run.commit(ODD)
    run.advance(999)
    assert len(run.writer.commits) == 1
    run.advance(1)
    assert run.commit().ended
    run.ended_with(Outcome.UNFINISHED)


def test_change_of_the_way_does_not_repeat_a_commit_that_fails() -> None:
    run = harness().opened_with(claimed(0))
    run.fetch(young(run, 0), made(1, timestamp=run.clock.unix_ms() - DAY_MS))
    run.acquired()
    run.ack()
    run.commit(ODD)
    run.commit(ODD)
    assert run.writer.closed is not None, "another attempt begins"
    assert len(run.writer.commits) == 2
