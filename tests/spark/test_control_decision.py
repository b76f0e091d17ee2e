"""What a run does about the control record that it finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.relay.progress.control_record import HEARTBEAT_INTERVAL_MS, RunControl
from mirror.spark.control_decision import ControlDecision, decide

NOW = 1_800_000_000_000
OWN = RunControl(run="run-2", host="h", since_ms=5, seen_ms=NOW)
EARLIER, LATER = replace(OWN, run="run-1"), replace(OWN, run="run-3")


def of(found: RunControl | None, wanted: RunControl = OWN) -> ControlDecision:
    return decide(found, wanted, unix_ms=NOW)


def test_nothing_is_committed_while_the_record_is_as_wanted_and_young() -> None:
    assert of(replace(OWN, seen_ms=NOW - HEARTBEAT_INTERVAL_MS + 1)) == ControlDecision()


def test_a_record_is_renewed_in_time() -> None:
    assert of(replace(OWN, seen_ms=NOW - HEARTBEAT_INTERVAL_MS)).commit == OWN


def test_a_record_is_renewed_although_the_clock_was_set_back() -> None:
    """Tasks take a driver for dead whose record does not change, however late its time is."""
    assert of(replace(OWN, seen_ms=NOW + 120_000)).commit == OWN


@pytest.mark.parametrize("change", [{"job": 4}, {"version": 2}, {"stop": True}])
def test_what_another_process_has_overwritten_is_committed_again(change: dict[str, Any]) -> None:
    wanted = replace(OWN, **change)
    assert of(OWN, wanted).commit == wanted
    assert of(wanted, wanted).commit is None


def test_a_missing_record_and_that_of_a_run_that_has_ended_are_replaced() -> None:
    wanted = replace(OWN, job=4, stop=True)
    for found in (None, EARLIER.stopped(ended=True), LATER.stopped(ended=True)):
        assert of(found, wanted) == ControlDecision(wanted, took_back=found, stop=True)


def test_a_run_that_has_ended_claims_nothing() -> None:
    for found in (EARLIER.stopped(ended=True), EARLIER, LATER):
        assert of(found, OWN.stopped(ended=True)).commit is None


def test_the_record_of_a_run_that_has_ended_is_kept_until_it_is_resumed() -> None:
    """A held flow is resumed by its record, which the target would forget otherwise."""
    own = OWN.stopped(ended=True)
    for found in (None, OWN, OWN.stopped(), replace(own, seen_ms=NOW - HEARTBEAT_INTERVAL_MS)):
        assert of(found, own) == ControlDecision(own, stop=True)
    assert of(own, own) == ControlDecision(stop=True)
    assert of(replace(own, stop=False), own) == ControlDecision()
    assert of(replace(LATER, ended=True), own) == ControlDecision(), "another run has copied the flow since"
    assert of(LATER.stopped(ended=True), own) == ControlDecision(stop=True)


def test_the_record_of_a_run_that_was_replaced_is_overwritten() -> None:
    assert of(EARLIER) == ControlDecision(OWN, previous=EARLIER)
    assert of(LATER) == ControlDecision(fenced_by=LATER)


def test_of_two_runs_the_later_claim_has_the_flow_whatever_their_clocks_say() -> None:
    own = replace(OWN, generation=4)
    by_slow_clock, by_fast_clock = replace(EARLIER, generation=5), replace(LATER, generation=3)
    assert of(by_slow_clock, own) == ControlDecision(fenced_by=by_slow_clock)
    assert of(by_fast_clock, own) == ControlDecision(own, previous=by_fast_clock), (
        "it does not know yet that it was replaced"
    )
    assert of(replace(LATER, generation=4), own).fenced_by is not None, "both have claimed it at the same time"
    assert of(replace(EARLIER, generation=4), own).fenced_by is None


def test_an_older_version_that_overwrites_the_record_of_this_run_does_not_lower_its_generation() -> None:
    own = replace(OWN, generation=4)
    assert of(OWN.stopped(), own) == ControlDecision(own.stopped(), stop=True)


def test_a_command_to_stop_is_kept_and_reported() -> None:
    assert of(OWN.stopped(), replace(OWN, job=4)) == ControlDecision(replace(OWN, job=4).stopped(), stop=True)


RECORDS = st.builds(
    RunControl,
    run=st.sampled_from(["run-1", "run-2", "run-3"]),
    host=st.just("h"),
    since_ms=st.just(5),
    job=st.integers(0, 3),
    version=st.integers(0, 3),
    stop=st.booleans(),
    ended=st.booleans(),
    seen_ms=st.sampled_from([0, NOW - 60_000, NOW]),
    generation=st.integers(0, 3),
    attempts=st.sampled_from([(), ((0, 1),), ((0, 2), (3, 1))]),
)


def test_the_newest_attempts_are_kept() -> None:
    found, wanted = replace(OWN, attempts=((0, 2), (1, 1))), replace(OWN, attempts=((0, 1), (2, 3)))
    assert of(found, wanted).commit == replace(OWN, attempts=((0, 2), (1, 1), (2, 3)))


@given(found=st.none() | RECORDS, wanted=RECORDS)
def test_a_committed_record_takes_nothing_back_and_needs_no_further_commit(
    found: RunControl | None, wanted: RunControl
) -> None:
    wanted = replace(wanted, run="run-2", stop=wanted.stop or wanted.ended)
    decision = of(found, wanted)
    if (commit := decision.commit) is None:
        return
    assert commit.run == "run-2"
    assert (commit.job, commit.version, commit.stop, commit.ended) >= (wanted.job, wanted.version, False, False)
    assert commit.stop >= wanted.stop
    assert commit.ended >= wanted.ended
    assert commit.generation >= wanted.generation
    if found is not None and found.run == "run-2":
        assert commit.job >= found.job
        assert commit.version >= found.version
        assert commit.stop >= found.stop
        assert commit.ended >= found.ended
        assert commit.generation >= found.generation
    assert of(commit, wanted).commit is None
