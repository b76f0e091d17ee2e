"""Rounds that ask only for what has changed, over whole copies: they end where rounds of all groups end."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mirror.client import TopicPartition
from mirror.groups.commit_decision import Reason
from mirror.groups.positions import GroupsReport
from mirror.groups.sync import GroupSync
from mirror.groups.watching.commit_watch import COMMITS_TOPIC
from mirror.wire.api import Api
from tests.fakes.clock import FakeClock
from tests.fakes.control import Action
from tests.fakes.errors import TOPIC_AUTHORIZATION_FAILED
from tests.groups.sync_site import GROUP, SOURCE, Site
from tests.groups.watching.test_changes import batch_of, in_transaction, key_of
from tests.polling import eventually

INTERVAL_MS: Final = 10_000
GROUPS: Final = ("a", "b", "c", "d")


class Hints:
    """What the watch says, which a test chooses."""

    is_open = True

    def __init__(self) -> None:
        self.groups: frozenset[str] | None = frozenset()

    def changed(self) -> frozenset[str] | None:
        found, self.groups = self.groups, frozenset()
        return found

    def hint(self, group: str) -> None:
        self.groups = None if self.groups is None else self.groups | {group}


class Watched:
    """Rounds of a site with a clock, and the groups that each has asked for."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
        self.clock, self.hints = FakeClock(), Hints()
        self.sync: Final[GroupSync] = site.sync(interval_ms=INTERVAL_MS, **changes)
        self.asked: list[list[str]] = []
        monkeypatch.setattr(self.sync, "_clock", self.clock)
        monkeypatch.setattr(self.sync.asked, "_clock", self.clock)
        monkeypatch.setattr(self.sync.asked, "_watch", self.hints)
        reader = self.sync._of_source
        offsets = reader.offsets

        def counted(groups: list[str]) -> object:
            self.asked.append(list(groups))
            return offsets(groups)

        monkeypatch.setattr(reader, "offsets", counted)

    def go_on(self, ms: int) -> None:
        """As the driver does: it asks for news sixteen times an interval, and has a round after each at the latest."""
        for _ in range(ms * 16 // INTERVAL_MS):
            self.clock.advance(INTERVAL_MS // 16)
            if self.sync.has_news() or self.clock.now() % INTERVAL_MS < INTERVAL_MS // 16:
                self.sync.round()


@pytest.fixture
def watched(site: Site, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(site, monkeypatch)


def test_a_group_that_the_flow_leaves_out_brings_no_round_forward(watched: Watched) -> None:
    watched.sync.round()
    watched.hints.hint("console-left-out")
    assert not watched.sync.has_news()
    watched.clock.advance(INTERVAL_MS - 1)
    assert not watched.sync.has_news()


def test_only_a_group_that_has_changed_is_asked_for(site: Site, watched: Watched) -> None:
    for group in GROUPS:
        site.commit(57, group=group)
    assert watched.sync.round().in_step == len(GROUPS)
    site.commit(105, group="b")
    watched.hints.hint("b")
    watched.asked.clear()
    assert not watched.sync.has_news()
    watched.clock.advance(INTERVAL_MS // 2)
    assert watched.sync.has_news()
    report = watched.sync.round()
    assert watched.asked == [["b"]]
    assert (report.in_step, report.is_watching, report.written) == (len(GROUPS), True, 1)
    assert site.at_target("b") == 85


@pytest.mark.parametrize("lost", ["hint", "all"])
def test_a_group_whose_hint_was_lost_is_asked_for_in_its_turn(site: Site, watched: Watched, lost: str) -> None:
    site.commit(57)
    watched.sync.round()
    site.commit(105)
    if lost == "all":
        watched.hints.groups = None
    watched.go_on(INTERVAL_MS * 2 if lost == "all" else 60_000 + INTERVAL_MS)
    assert site.at_target() == 85


def test_the_last_round_asks_for_all_groups(site: Site, watched: Watched) -> None:
    site.commit(57)
    watched.sync.round()
    site.commit(105)
    watched.sync.round()
    assert site.at_target() == 47
    watched.sync.round(last=True)
    assert site.at_target() == 85


def test_after_a_round_that_failed_all_groups_are_asked_for(
    site: Site, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.commit(57)
    watched.sync.round()
    site.commit(105)
    watched.hints.hint(GROUP)
    watched.clock.advance(INTERVAL_MS // 2)
    with monkeypatch.context() as patch:
        patch.setattr(watched.sync, "_translate", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            watched.sync.round()
    watched.sync.round()
    assert site.at_target() == 85


def test_a_takeover_is_found_in_its_turn_and_a_resume_at_once(site: Site, watched: Watched) -> None:
    site.commit(57)
    watched.sync.round()
    site.commit_on_target(3)
    watched.go_on(60_000 + INTERVAL_MS)
    state = watched.sync.round().groups[GROUP]
    assert state.reasons == {Reason.TAKEN_OVER}
    site.sync().resume(GROUP)
    watched.clock.advance(1)
    watched.sync.round()
    assert site.at_target() == 47


def test_a_group_in_front_of_the_copy_is_followed_as_it_goes_on(site: Site, watched: Watched) -> None:
    site.pair.write(b"new")
    site.commit(251)
    report = watched.sync.round()
    assert report.groups[GROUP].reasons == {Reason.NOT_COPIED}
    site.pair.copy()
    watched.go_on(INTERVAL_MS * 2)
    assert watched.sync.round().in_step == 1


def test_groups_beyond_the_limit_stay_named_and_follow_when_there_is_room(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group in GROUPS:
        site.commit(57, group=group)
    watched = Watched(site, monkeypatch, most=3)
    (line,) = watched.sync.round().problems
    assert "group d left out" in line
    site.commit(105, group="a")
    watched.hints.hint("a")
    watched.sync.has_news()
    watched.clock.advance(INTERVAL_MS // 2)
    assert watched.sync.round().problems == (line,)
    assert site.at_target("a") == 85


_STEPS: Final = st.lists(
    st.tuples(
        st.sampled_from(GROUPS),
        st.one_of(st.none(), st.integers(0, 255)),
        st.booleans(),
        st.sampled_from([0, 1_250, 2_500, 10_000]),
    ),
    max_size=12,
)


@settings(
    max_examples=8, phases=[Phase.generate], deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=_STEPS)
def test_rounds_of_what_has_changed_end_where_rounds_of_all_groups_end(
    site: Site, monkeypatch: pytest.MonkeyPatch, steps: list[tuple[str, int | None, bool, int]]
) -> None:
    """Groups commit and forget offsets; some hints are lost."""
    with monkeypatch.context() as patch:
        watched = Watched(site, patch)
        for group, offset, is_seen, passed_ms in steps:
            if offset is None:
                site.pair.source.groups[group].pop(SOURCE, None)
            else:
                site.commit(offset, group=group)
            if is_seen:
                watched.hints.hint(group)
            watched.go_on(passed_ms)
        watched.go_on(60_000 + INTERVAL_MS)
        before = watched.sync.round(last=True)
        assert before.written == 0
        assert places(before) == places(site.sync().round(write=False))


def places(report: GroupsReport) -> dict[str, list[tuple[int | None, int | None, Reason | None]]]:
    return {
        name: [(one.source_offset, one.target_offset, one.reason) for one in state.positions]
        for name, state in report.groups.items()
    }


# --- the watch itself


def wrote(site: Site, group: str, *, transaction: int | None = None) -> None:
    """The coordinator of a group writes that it has committed."""
    made = batch_of(key_of(group)) if transaction is None else in_transaction(transaction, key_of(group))
    site.pair.source.log(COMMITS_TOPIC).append(bytes(made.view))


def test_the_watch_sees_what_coordinators_write(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.pair.source.add_topic(COMMITS_TOPIC)
    site.commit(57)
    wrote(site, GROUP)
    clock = FakeClock()
    sync = site.sync(interval_ms=80)
    monkeypatch.setattr(sync.asked, "_clock", clock)
    assert sync.round().is_watching
    site.commit(105)
    wrote(site, GROUP)
    clock.advance(20)

    def is_due() -> bool:
        clock.advance(10)
        return sync.has_news()

    eventually(is_due, what="the commit")
    assert sync.round().is_watching
    assert site.at_target() == 85


@pytest.mark.parametrize("why", ["no topic", "no permission"])
def test_without_a_watch_each_round_asks_for_all_groups(site: Site, why: str) -> None:
    if why == "no permission":
        site.pair.source.add_topic(COMMITS_TOPIC)
        site.pair.source.control.on(
            Api.LIST_OFFSETS, Action(errors={TopicPartition(COMMITS_TOPIC, 0): TOPIC_AUTHORIZATION_FAILED}), times=None
        )
    sync = site.sync(interval_ms=1_000)
    for offset, at_target in ((57, 47), (105, 85)):
        site.commit(offset)
        assert not sync.round().is_watching
        assert site.at_target() == at_target
    assert not sync.asked.is_watching
    site.commit(57, group="new")
    assert sync.has_news()


def test_a_log_that_was_cut_back_has_all_groups_asked_for(site: Site) -> None:
    site.pair.source.add_topic(COMMITS_TOPIC)
    for _ in range(3):
        wrote(site, GROUP)
    sync = site.sync(interval_ms=80)
    sync.round()
    assert sync.asked.is_watching
    site.commit(105)
    site.pair.source.log(COMMITS_TOPIC).truncate(1)

    def has_lost() -> bool:
        sync.has_news()
        return not sync.asked.is_watching

    eventually(has_lost, what="the loss")
    sync.round()
    assert site.at_target() == 85
