"""For how long groups have not been in step, also those that cannot be read. Real clients, brokers in memory."""

from __future__ import annotations

import pytest

from mirror.groups.decision import Reason
from mirror.groups.positions import GroupsReport
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.clock import FakeClock
from tests.fakes.control import Action, ServerCall
from tests.groups.sync_site import GROUP, Site


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
