"""Groups that have another name on the target. Real clients, brokers in memory."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from mirror.client import Admin
from mirror.config.own_tables import GroupsConfig
from mirror.groups.commit_decision import Reason
from mirror.groups.kept_groups import KeptGroups
from mirror.groups.kept_positions import read_kept
from mirror.groups.reverse import ReverseGroups
from mirror.groups.routes import CopyingFlow, Partners
from mirror.groups.rules import GroupRules
from mirror.groups.sync import GroupSync
from mirror.relay.progress.flow_topic import group_topic_of
from mirror.runtime.clock import SystemClock
from mirror.wire.api import Api
from tests.fakes.api_admin import FakeGroup, FakeMember
from tests.fakes.cluster import GroupOffset
from tests.groups.sync_site import GROUP, SOURCE, TARGET, Site, access_to, only, rules, turned
from tests.relay.fake_pair import FLOW

NEW = f"eu.{GROUP}"


def renamed(names: dict[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    """Rules, by a table of names."""
    table = GroupsConfig.model_validate({"names": names or {"(b.*)": "eu.$1"}, "exclude": ["mirror.*"]})
    named = {key: getattr(table, key) for key in ("target_group", "source_group", "name_taken_by", "includes")}
    return {**named, **changes}


def test_the_position_is_committed_for_the_new_name_alone(site: Site) -> None:
    sync = site.sync(**renamed())
    site.commit(137)
    report = sync.round()
    assert (report.written, only(report).reason, report.problems) == (1, None, ())
    first = site.at_target(NEW)
    assert first is not None
    assert site.at_target(GROUP) is None
    site.commit(200)
    assert sync.round().written == 1
    assert (site.at_target(NEW) or 0) > first
    site.commit_on_target(7, group=NEW)
    site.commit(210)
    assert only(sync.round()).reason is Reason.TAKEN_OVER
    assert sync.resume(GROUP) == 1
    assert only(sync.round()).reason is None


def test_members_of_the_new_group_keep_their_position(site: Site) -> None:
    sync = site.sync(**renamed())
    site.pair.target.admin.groups[NEW] = FakeGroup(state="Stable", members=[FakeMember("m", [TARGET])])
    site.commit(137)
    assert only(sync.round()).reason is Reason.ACTIVE
    assert site.at_target(NEW) is None
    assert not site.pair.target.calls(Api.OFFSET_COMMIT), "it is listed under its new name"


def test_an_offset_that_the_source_s_group_does_not_have_any_more_is_deleted_under_the_new_name(site: Site) -> None:
    sync = site.sync(**renamed(delete=True))
    site.commit(137)
    assert sync.round().written == 1
    del site.pair.source.groups[GROUP][SOURCE]
    for _ in range(7):  # the target is read whole at least each sixth time
        sync.round()
    assert site.at_target(NEW) is None


def test_of_two_groups_with_one_name_the_other_is_left_out_and_named(site: Site) -> None:
    sync = site.sync(**renamed({GROUP: "sales"}))
    site.commit(137)
    site.commit(200, group="sales")
    report = sync.round()
    assert report.groups.keys() == {GROUP}
    assert report.problems == (
        f"group sales is left out: its name on the target is kept for group {GROUP}; give it another in names",
    )
    assert only(report).reason is None
    assert site.at_target("sales") == only(report).target_offset


def test_the_way_back_is_to_the_old_name(site: Site) -> None:
    sync = site.sync(**renamed())
    site.commit(100)
    assert sync.round().written == 1
    site.commit_on_target(150, group=NEW)
    site.commit_on_target(150, group=GROUP)
    with ReverseGroups(access_to(site.pair), rules(**renamed()), SystemClock()) as way_back:
        (position,), problems = way_back.commit(resume=True)
    assert (position.group, position.written, problems) == (GROUP, True, [])
    assert site.pair.source.groups[GROUP][SOURCE].offset == position.translation.offset
    assert NEW not in site.pair.source.groups
    assert only(sync.round()).reason is None, "the flow goes on from there"


def test_two_flows_bring_a_group_there_and_back_under_its_names(site: Site) -> None:
    """The way back removes what the way there has put in front; without that, it would bring over another group."""
    site.pair.source.add_topic(group_topic_of("back"))
    ahead = access_to(site.pair)
    there = rules(**renamed())
    table = GroupsConfig.model_validate({"names": {r"eu\.(.*)": "$1"}})
    here = GroupRules(
        includes=table.includes,
        target_group=table.target_group,
        source_group=table.source_group,
        target_topic=lambda _: None,
        source_topic=lambda _: None,
    )
    copying = CopyingFlow(access=ahead, rules=there, writes=True)
    with (
        GroupSync(ahead, there, SystemClock(), Partners(opposite="back", opposite_group=table.source_group)) as forth,
        GroupSync(turned(ahead, "back"), here, SystemClock(), Partners(copying=(copying,))) as back,
    ):
        site.commit(100)
        assert only(forth.round()).reason is None
        assert not only(back.round(), NEW).reason, "it came from there"
        site.commit_on_target(150, group=NEW)
        assert only(back.round(), NEW).reason is None
        moved = site.pair.source.groups[GROUP][SOURCE].offset
        assert moved > 100
        assert only(forth.round()).reason is None
        assert (site.at_target(NEW), site.pair.source.groups[GROUP][SOURCE].offset) == (150, moved)


@pytest.mark.parametrize("foreign", [False, True])
def test_the_groups_that_a_flow_keeps_have_their_old_names(site: Site, foreign: bool) -> None:
    site.commit(137)
    assert site.sync(**renamed()).round().written == 1
    if foreign:
        site.pair.target.groups[NEW][TARGET._replace(topic="u")] = GroupOffset(1, -1, "")
    table = renamed()
    options = {"bootstrap.servers": site.pair.target.bootstrap}
    kept = KeptGroups(options, FLOW, SystemClock(), table["target_group"], table["source_group"])
    try:
        assert kept.names(lambda topic: topic == TARGET.topic, ()) == frozenset(() if foreign else (GROUP,))
    finally:
        kept.close()


@pytest.mark.parametrize("at", ["target", "resumed"])
def test_an_edited_rule_takes_no_group_of_the_target_s_own_for_the_flow_s(site: Site, at: str) -> None:
    """Groups at a log's end have the same offset, so that the offset alone does not show whose it is."""
    site.commit(137)
    with site.sync(**renamed()) as first:
        assert first.round().written == 1
        if at == "resumed":
            site.commit_on_target(7, group=NEW)
            assert first.resume(GROUP) == 1
        offset = site.at_target(NEW)
    assert offset is not None
    site.commit_on_target(offset, group="sales")
    edited = renamed({GROUP: "sales"})
    options = {"bootstrap.servers": site.pair.target.bootstrap}
    kept = KeptGroups(options, FLOW, SystemClock(), edited["target_group"], edited["source_group"])
    with contextlib.closing(kept):
        assert kept.names(lambda _: True, ()) == frozenset(), "so that sales gets no ACLs"
    with site.sync(**edited) as second:
        site.commit(200)
        report = second.round()
        assert (report.written, only(report, GROUP).reason) == (0, Reason.TAKEN_OVER)
        assert site.at_target("sales") == offset
    with site.sync(**renamed()) as third:
        assert third.round().written == 1, "with the old rule it goes on"


@pytest.mark.parametrize("before", [{GROUP: "eu.1", "sales": "eu.2"}, {}])
def test_the_name_of_a_group_that_another_one_gets_keeps_its_position(site: Site, before: dict[str, str]) -> None:
    """Also where two groups change their names, and where the positions are equal."""
    first = {name: before.get(name, name) for name in (GROUP, "sales")}
    swapped = {GROUP: first["sales"], "sales": first[GROUP]}
    site.commit(137)
    site.commit(150, group="sales")
    with site.sync(**renamed(first)) as sync:
        assert sync.round().written == 2
    there = {name: site.at_target(name) for name in swapped.values()}
    for offset in (200, 137):
        site.commit(offset)
        site.commit(offset, group="sales")
        with site.sync(**renamed(swapped)) as sync:
            report = sync.round()
        assert report.written == 0
        assert {only(report, name).reason for name in swapped} <= {Reason.TAKEN_OVER, None}, "None: it is equal"
        assert {name: site.at_target(name) for name in swapped.values()} == there
    with site.sync(**renamed(swapped)) as sync:
        assert sync.resume(GROUP) == 1, "a person says that it goes on there"
        site.commit(200)
        report = sync.round()
        assert (report.written, only(report, GROUP).reason) == (1, None)
    with site.sync(**renamed(first)) as sync:
        assert only(sync.round(), GROUP).reason is None, "with the old rule it goes on"


def test_the_target_alone_shows_the_positions_under_the_new_name_by_the_old_one(site: Site) -> None:
    site.commit(137)
    with site.sync(**renamed()) as sync:
        assert sync.round().written == 1
    options = {"bootstrap.servers": site.pair.target.bootstrap}
    with Admin(options) as admin:
        (named,) = read_kept(admin, options, FLOW, renamed()["source_group"])
        (plain,) = read_kept(admin, options, FLOW)
        assert not read_kept(admin, options, FLOW, lambda _: None)
    assert (named.group, plain.group, named.missing) == (GROUP, NEW, 0)
    assert named.positions == plain.positions
    assert named.positions[0].target_offset == site.at_target(NEW)
