"""Races between attempts by sequences that random schedules hit too seldom, with the real code on fake brokers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.wire.api import Api
from mirror.wire.records import Batch
from tests.fakes import errors
from tests.fakes.control import Action, ServerCall
from tests.relay.partition.sequences_faults import FaultySite
from tests.relay.partition.sequences_site import TARGET, CopySite


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def site(request: pytest.FixtureRequest) -> Iterator[FaultySite]:
    """Each source batch is a target batch, one in flight at a time."""
    options = {"max.in.flight.requests.per.connection": 1, "batch.size": 1}
    made = FaultySite(level=request.param, by="auto", marker_ms=0, jitter_ms=0, seed=1, **options)
    yield made
    made.close()


def _plain_batches(site: CopySite) -> list[Batch]:
    return [one for one in site.log.batches() if not one.is_control]


def test_records_of_an_earlier_producer_id_are_found_though_a_later_attempt_died(site: FaultySite) -> None:
    """Its claim names the earlier producer ids, which no other progress does."""
    site.source_grows([2], 0)
    site.producer_id_changes_between_attempts_that_die([1])
    site.finish()


@pytest.mark.parametrize("markers", [0, 1])
def test_retention_may_delete_all_that_an_ended_attempt_copied(site: CopySite, markers: int) -> None:
    """Also what others, or aborted attempts, wrote behind it: nothing of the copy can have been there."""
    site.source_grows([2] * 3, 0)
    site.retention_deletes_what_an_ended_attempt_copied(markers)
    assert len(site.results) == 2
    site.retention_deletes_what_an_ended_attempt_copied(markers)
    assert len(site.results) == 4
    site.finish()


def test_fence_without_data_may_be_deleted(site: CopySite) -> None:
    """The next attempt reads from behind that fence on, since its attempt has committed how far it had searched."""
    site.source_grows([2], 0)
    refused = [Action(errors={TARGET: errors.NOT_ENOUGH_REPLICAS})] * 1_000
    first = site.attempt()
    site.simulation.run(until=lambda: first.ended, ms=60_000)
    for one in refused:
        site.target.control.on(Api.PRODUCE, one)
    site.source_grows([2], 0)
    second = site.attempt()
    site.simulation.run(until=lambda: len(site.log.index) >= 3, ms=60_000)
    site.simulation.run(ms=2_000)
    assert not second.ended
    second.kill()
    site.target.control.clear()
    site.log.delete_before(site.log.high_watermark)
    site.finish()
    assert site.results[-1].error is None


def test_batch_of_an_earlier_attempt_that_arrives_before_the_late_marker_is_found(site: CopySite) -> None:
    """It arrives when the next attempt sends: not before the marker is there, behind which nothing can arrive."""
    site.source_grows([2] * 6, 0)
    held = Action(hold="before")
    produced: list[ServerCall] = []

    def rule(call: ServerCall) -> Action | None:
        if call.api is not Api.PRODUCE or not site.is_of_target(call):
            return None
        produced.append(call)
        if len(produced) == 3:
            first.suspended = True  # at once: in a simulation, its other threads would wait for this answer
            return held
        if site.simulation.owners["berlin", call.connection] == "attempt-1":
            held.release()
            return Action(stall_ms=20)
        return None

    site.target.control.add(rule)
    first = site.attempt()
    site.simulation.run(until=lambda: len(produced) >= 3, ms=10_000)
    assert len(_plain_batches(site)) == 2
    site.markers_take(1_500)
    second = site.attempt()
    site.simulation.run(until=lambda: second.ended, ms=60_000)
    assert second.results is not None
    site.check()
    site.finish()


@pytest.mark.parametrize("by", ["auto", "transactions"])
def test_marker_may_be_written_more_than_once(site: CopySite, by: str) -> None:
    """Brokers refuse a repeated marker or write it again, depending on their version: nothing rests on either."""
    site.flow_is_configured(by)
    site.source_grows([2] * 6, 0)
    produced: list[ServerCall] = []

    def rule(call: ServerCall) -> None:
        if call.api is Api.PRODUCE and site.is_of_target(call):
            produced.append(call)
            site.marker_comes_again()

    site.target.control.add(rule)
    first = site.attempt()
    site.simulation.run(until=lambda: len(produced) >= 4, ms=10_000)
    first.kill()
    for _ in range(2):
        site.source_grows([1], 0)
        attempt = site.attempt()
        site.simulation.run(until=lambda attempt=attempt: attempt.ended, ms=60_000)  # type: ignore[misc]
        assert attempt.results is not None
        assert attempt.results[0].outcome is Outcome.COMPLETE, attempt.results[0].error
    stamps = [(one.producer_id, one.producer_epoch) for one in site.log.batches() if one.is_control]
    assert len(stamps) > len(set(stamps)) + 1, "markers were repeated"
    site.finish()


def test_attempt_that_dies_at_the_marker_of_its_data_has_committed_its_progress(site: CopySite) -> None:
    """Retention deletes the data on both sides before the next attempt: only the progress shows that it was copied."""
    site.flow_is_configured("transactions")
    site.source_grows([2, 1], 0)
    site.target.control.add(lambda call: Action(delay_ms=1_000) if call.api is Api.END_TXN else None)
    attempt = site.attempt()
    site.simulation.run(until=lambda: any(one.is_control for one in site.log.batches()), ms=60_000)
    assert not attempt.ended, "the marker is there, and the answer to EndTxn is not"
    attempt.kill()
    for log in (site.log, site.source_log):
        log.delete_before(log.high_watermark)
    site.source_grows([1], 0)
    site.finish()
    assert site.results[-1].error is None


@pytest.mark.parametrize("site", [1], indirect=True)  # version 2 needs other numbers of attempts
def test_copy_that_starts_over_does_not_look_where_the_other_log_was_searched(site: CopySite) -> None:
    """With nothing to copy, its first attempt fences in the new topic before it compares the two.

    What the progress says was searched is then taken for a place behind the marker of the second attempt's fence.
    """
    site.source_grows([2, 1, 3], 0)
    attempts = [site.attempt(), site.attempt()]
    site.simulation.run(until=lambda: all(one.ended for one in attempts), ms=60_000)
    site.target_is_made_again(offsets_too=False)
    started_over = site.attempt()
    site.simulation.run(until=lambda: started_over.ended, ms=60_000)
    assert started_over.results is not None
    (result,) = started_over.results
    assert result.outcome is Outcome.COMPLETE, result.error
    assert site.visible(committed=True) == site.stream


def test_target_made_again_is_reported_though_nothing_is_to_be_copied(site: CopySite) -> None:
    """The attempt fences to commit its progress again: it must not search the other log for the marker."""
    site.source_grows([2, 1, 3], 0)
    attempts = [site.attempt(), site.attempt()]
    site.simulation.run(until=lambda: all(one.ended for one in attempts), ms=60_000)
    site.target_is_made_again(offsets_too=False)
    site.policy = replace(site.policy, start_over=False)
    again = site.attempt()
    site.simulation.run(until=lambda: again.ended, ms=60_000)
    assert again.results is not None
    (result,) = again.results
    assert result.outcome is Outcome.FAILED
    assert str(result.error).startswith("target-recreated: ")
