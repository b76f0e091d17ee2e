"""Rounds that are killed, late or fenced, over whole copies. Real clients, brokers in memory."""

from __future__ import annotations

from typing import Any

import pytest

from mirror.errors import Fenced
from mirror.groups.commit_decision import Intent, Reason
from mirror.groups.sync import GroupSync
from mirror.relay.progress.flow_topic import group_topic_of
from mirror.wire.api import Api
from tests.fakes.clock import FakeClock
from tests.fakes.cluster import GroupOffset
from tests.fakes.control import Action
from tests.fakes.errors import TOPIC_AUTHORIZATION_FAILED
from tests.groups.sync_site import GROUP, TARGET, Site, only
from tests.relay.fake_pair import FLOW


def _killed(monkeypatch: pytest.MonkeyPatch, sync: GroupSync, method: str) -> None:
    """Have the next round end in ``method``."""

    def dies(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(sync._commits, method, dies)


def _stored(site: Site) -> Intent | None:
    """The last intent, as a later run reads it."""
    reader = site.sync()
    reader._commits.read_intents()
    return reader._intents.get(GROUP, TARGET)


def test_after_a_crash_between_intent_and_commit_the_next_run_goes_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = site.sync()
    site.commit(100)
    sync.round()
    site.commit(137)
    _killed(monkeypatch, sync, "_commit")
    with pytest.raises(KeyboardInterrupt):
        sync.round()
    assert site.at_target() == 80
    assert sync._intents.get(GROUP, TARGET) == Intent(137, 111, 100, 80, 0)
    site.commit(147)
    assert only(site.sync().round()).reason is None
    assert site.at_target() == 119


def test_a_commit_that_a_killed_run_has_sent_arrives_late_and_is_corrected(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = site.sync()
    site.commit(100)
    old.round()
    site.commit(200)
    _killed(monkeypatch, old, "_commit")
    with pytest.raises(KeyboardInterrupt):
        old.round()
    site.commit(137)
    new = site.sync()
    new.round()
    assert site.at_target() == 111
    site.pair.target.groups[GROUP][TARGET] = GroupOffset(160, -1, "")
    for _ in range(6):
        new.round()
    assert site.at_target() == 111


def test_an_earlier_run_stores_and_commits_nothing_once_a_later_one_has_begun(site: Site) -> None:
    old = site.sync()
    site.commit(100)
    old.round()
    new = site.sync()
    new.round()
    site.commit(137)
    with pytest.raises(Fenced) as caught:
        old.round()
    found = old.fenced(caught.value)
    assert found.groups[GROUP].reasons == {Reason.OTHER_RUN}
    assert found.problems == (str(caught.value),)
    assert site.at_target() == 80
    new.round()
    assert site.at_target() == 111
    site.commit(147)
    assert only(old.round()).reason is None
    assert site.at_target() == 119


def test_what_a_run_commits_while_another_process_reads_is_not_taken_over(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.commit(137)
    reader, run = site.sync(), site.sync()
    lists = reader._of_target.list_groups

    def meanwhile() -> object:
        site.commit(100)
        run.round()
        return lists()

    monkeypatch.setattr(reader._of_target, "list_groups", meanwhile)
    position = only(reader.round(write=False))
    assert (position.reason, position.pending, position.target_offset) == (None, True, 80)


def test_a_run_that_was_fenced_compares_all_groups_again(site: Site) -> None:
    """Another run may have committed meanwhile."""
    run = site.sync()
    site.commit(100)
    run.round()
    site.sync().round()
    site.commit(100, group="other")
    with pytest.raises(Fenced):
        run.round()
    site.commit_on_target(90)
    assert only(run.round()).reason is Reason.TAKEN_OVER


def test_a_round_stores_with_its_intents_that_the_commits_before_have_succeeded(site: Site) -> None:
    sync, transactions = site.sync(), list[int]()
    for offset in (0, 100, 137):
        before = len(site.pair.target.calls(Api.END_TXN))
        site.commit(offset)
        sync.round()
        transactions.append(len(site.pair.target.calls(Api.END_TXN)) - before)
    assert transactions == [1, 1, 1]
    assert _stored(site) == Intent(137, 111, 100, 80, 0)
    sync.round()
    assert _stored(site) == Intent(137, 111, epoch=0), "a round with nothing to commit"
    before = len(site.pair.target.calls(Api.END_TXN))
    sync.round()
    sync.close()
    assert len(site.pair.target.calls(Api.END_TXN)) == before


def test_a_position_whose_commit_was_refused_stays_the_flow_s_own(site: Site) -> None:
    sync = site.sync()
    site.commit(100)
    sync.round()
    site.commit(137)
    refused = Action(errors={TARGET: TOPIC_AUTHORIZATION_FAILED})
    site.pair.target.control.on(Api.OFFSET_COMMIT, refused)
    assert only(sync.round()).reason is Reason.UNAUTHORIZED
    assert site.at_target() == 80
    assert only(sync.round()).reason is None
    assert site.at_target() == 111


def test_a_reset_to_what_the_last_commit_of_a_run_has_replaced_is_kept_once_the_run_has_ended(site: Site) -> None:
    sync = site.sync()
    for offset in (100, 137):
        site.commit(offset)
        sync.round()
    sync.close()
    assert _stored(site) == Intent(137, 111, epoch=0)
    site.commit_on_target(80)
    assert only(site.sync().round()).reason is Reason.TAKEN_OVER
    assert site.at_target() == 80


def test_a_run_that_was_fenced_does_not_fence_the_later_one_when_it_ends(site: Site) -> None:
    old = site.sync()
    for offset in (0, 100):
        site.commit(offset)
        old.round()
    new = site.sync()
    site.commit(137)
    new.round()
    site.commit(147)
    with pytest.raises(Fenced):
        old.round()
    old.close()
    assert only(new.round()).reason is None
    assert site.at_target() == 119
    assert _stored(site) == Intent(147, 119, 137, 111, 0)


def test_a_run_that_does_not_know_yet_that_it_was_fenced_stores_nothing_when_it_ends(site: Site) -> None:
    old = site.sync()
    for offset in (0, 100):
        site.commit(offset)
        old.round()
    new = site.sync()
    site.commit(137)
    new.round()
    old.close()
    assert _stored(site) == Intent(137, 111, 100, 80, 0)
    site.commit(147)
    assert only(new.round()).reason is None
    assert site.at_target() == 119


def test_a_run_that_is_suspended_between_intent_and_commit_commits_nothing_afterwards(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    old, new = site.sync(clock=clock), site.sync()
    site.commit(100)
    old.round()
    site.commit(200)
    commits = old._commits._commit

    def suspended(*arguments: Any) -> int:
        site.commit(137)
        new.round()
        site.commit_on_target(95)
        clock.advance(10_000)
        return commits(*arguments)

    monkeypatch.setattr(old._commits, "_commit", suspended)
    assert only(old.round()).reason is Reason.UNAVAILABLE
    assert site.at_target() == 95


def test_an_earlier_run_deletes_nothing_once_a_later_one_has_begun(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = site.sync(delete=True), site.sync()
    site.commit(100)
    old.round()
    del site.pair.source.groups[GROUP]
    writes = old._commits.write

    def fenced(*arguments: Any) -> int:
        site.commit(137)
        new.round()
        return writes(*arguments)

    monkeypatch.setattr(old._commits, "write", fenced)
    with pytest.raises(Fenced):
        old.round()
    assert site.at_target() == 111


def test_an_intent_that_becomes_visible_late_does_not_replace_a_later_one(site: Site) -> None:
    """The marker of the last transaction is written after the call that has committed it."""
    sync = site.sync()
    for offset in (0, 137):
        site.commit(offset)
        sync.round()
    site.commit(147)
    site.pair.target.marker_ms = 1_000
    sync.round()
    settled = sync._intents.get(GROUP, TARGET)
    site.commit_on_target(111)
    site.commit(150)
    assert only(sync.round()).reason is Reason.TAKEN_OVER
    assert settled == sync._intents.get(GROUP, TARGET) == Intent(147, 119, epoch=0)
    assert site.at_target() == 111


def test_nothing_is_committed_if_the_intents_cannot_be_stored(site: Site) -> None:
    site.commit(137)
    sync = site.sync()
    del site.pair.target.topics[group_topic_of(FLOW)]
    with pytest.raises(Exception, match="mirror-groups"):
        sync.round()
    assert site.at_target() is None


def test_only_looking_changes_nothing(site: Site) -> None:
    site.commit(137)
    before = len(site.pair.target.calls(Api.INIT_PRODUCER_ID))
    report = site.sync().round(write=False)
    assert only(report).pending
    assert not report.in_step
    assert site.at_target() is None
    assert len(site.pair.target.calls(Api.INIT_PRODUCER_ID)) == before
