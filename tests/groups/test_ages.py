"""For how long groups have not been in step, also those that cannot be read. Real clients, brokers in memory."""

from __future__ import annotations

import pytest

from mirror.groups.commit_decision import Reason
from mirror.groups.positions import GroupsReport
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.clock import FakeClock
from tests.fakes.control import Action, ServerCall
from tests.groups.sync_site import GROUP, Site, only


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("known", [False, True])
def test_a_group_that_cannot_be_read_ages_until_it_can_be(site: Site, side: str, known: bool) -> None:
    clock = FakeClock()
    sync = site.sync(clock=clock)
    site.commit(100)
    if known:
        assert sync.round().oldest_ms == 0
    refused = Action(errors={GROUP: errors.GROUP_AUTHORIZATION_FAILED})

    def rule(call: ServerCall) -> Action | None:
        is_read = call.api is Api.OFFSET_FETCH and any(one.group_id == GROUP for one in call.body.groups)
        return refused if is_read else None

    control = (site.pair.source if side == "source" else site.pair.target).control
    control.add(rule)
    site.commit(137)
    for age_ms in (0, 60_000, 120_000):
        report = sync.round()
        assert (report.oldest_ms, report.groups[GROUP].reason) == (age_ms, Reason.UNAUTHORIZED)
        clock.advance(60_000)
    control.clear()
    assert (sync.round().oldest_ms, site.at_target()) == (0, 111)


def test_rounds_that_fail_age_too_until_one_succeeds() -> None:
    report = GroupsReport(time_ms=1_000)
    for age_ms in (0, 60_000, 120_000):
        report = report.failed("no answer", 61_000 + age_ms)
        assert (report.oldest_ms, report.problems) == (age_ms, ("no answer",))


def test_a_position_is_as_old_as_its_intent_also_for_another_process(site: Site) -> None:
    clock = FakeClock()
    sync = site.sync(clock=clock)
    site.commit(100)
    stored_ms = clock.unix_ms()
    sync.round()
    clock.advance(60_000)
    site.commit(100, metadata="other")  # the same position is stored again
    sync.round()
    site.commit(137)
    found = only(site.sync(clock=clock).round(write=False))
    assert (found.pending, found.stored_ms) == (True, stored_ms)
    clock.advance(60_000)
    stored_ms = clock.unix_ms()
    sync.round()
    found = only(site.sync(clock=clock).round(write=False))
    assert (found.pending, found.stored_ms) == (False, stored_ms)


def test_a_position_that_a_consumer_has_committed_on_the_target_has_no_age(site: Site) -> None:
    site.commit(100)
    site.sync().round()
    site.commit_on_target(105)
    found = only(site.sync().round(write=False))
    assert (found.reason, found.stored_ms) == (Reason.TAKEN_OVER, None)
