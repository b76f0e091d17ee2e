"""Copies of a stream that are fenced in the middle of their epoch, although no other run has taken over."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from mirror.errors import KafkaTimeout
from mirror.relay.futures import done, failed
from mirror.relay.model.ranges import Outcome
from mirror.relay.partition.states import FAILURE_BACKOFF_MS
from mirror.relay.progress.control import RunControl
from tests.relay.copy_harness import made
from tests.relay.task.test_lease import LeaseHarness

FENCED_AT_MS = 20_000
OURS = RunControl(run="run-1", host="h", since_ms=1)


@pytest.fixture
def fenced(monkeypatch: pytest.MonkeyPatch) -> LeaseHarness:
    """For a second, what partition 1 commits is refused by a fence: a late request of an attempt that has ended."""
    fenced = LeaseHarness(monkeypatch)
    fenced.target.fenced_at = fenced.began + FENCED_AT_MS
    fenced.target.fenced_until = fenced.target.fenced_at + 1_000
    fenced.harness.source.later[1] = [(fenced.target.fenced_at, made(2))]
    return fenced


def attempts(fenced: LeaseHarness) -> list[int]:
    """When the attempts at the fenced partition began, in ms since the epoch's beginning."""
    return [at_ms - fenced.began for partition, at_ms in fenced.target.opened if partition == 1]


def test_stray_fence_is_fenced_again_if_no_other_run_has_taken_over(fenced: LeaseHarness) -> None:
    fenced.harness.lookups.control = OURS
    fenced.run(run="run-1", epoch=1)
    ((_, results),) = fenced.handed_over
    assert {(result.outcome, result.error) for result in results} == {(Outcome.COMPLETE, None)}
    assert [result.end for result in results] == [2, 3, 2, 2]
    _, again = attempts(fenced)
    assert again == pytest.approx(FENCED_AT_MS + FAILURE_BACKOFF_MS, abs=500)


@pytest.mark.parametrize("unreadable", [False, True])
def test_fence_that_may_be_another_run_s_ends_the_copy(
    fenced: LeaseHarness, monkeypatch: pytest.MonkeyPatch, unreadable: bool
) -> None:
    """The control record that named this run was read before the fence."""
    lookups, clock = fenced.harness.lookups, fenced.harness.clock

    def control() -> Future[RunControl | None]:
        if clock.now() < fenced.target.fenced_at:
            return done(OURS)
        return failed(KafkaTimeout("no coordinator")) if unreadable else done(None)

    monkeypatch.setattr(lookups, "run_control", control)
    fenced.run(run="run-1", epoch=1)
    ((_, results),) = fenced.handed_over
    assert [result.outcome for result in results] == [
        Outcome.COMPLETE,
        Outcome.FENCED,
        Outcome.COMPLETE,
        Outcome.COMPLETE,
    ]
    assert len(attempts(fenced)) == 1
