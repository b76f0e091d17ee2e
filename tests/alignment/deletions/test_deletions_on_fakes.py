"""Rounds that delete topics. Real clients, brokers in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mirror.alignment.deletion_decision import CONFIRM_MS, LIMIT_PERIOD_MS, SETTLE_MS
from mirror.client import Outcomes
from mirror.errors import Fenced, KafkaError, KafkaTimeout
from mirror.relay.progress.flow_topic import inventory_topic_of
from mirror.wire.api import Api
from tests.alignment.deletions.deletion_site import DeletionSite, done, kept, pending
from tests.fakes import errors
from tests.fakes.control import Action
from tests.relay.fake_pair import FLOW, FakePair

ALL = {"paris.t", "paris.u", "paris.v"}


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeletionSite]:
    site = DeletionSite(FakePair(monkeypatch, source_brokers=2))
    site.prepare()
    assert site.copies() == ALL
    yield site
    site.close()


def test_a_topic_is_deleted_by_the_second_round_after_its_source_topic(site: DeletionSite) -> None:
    assert site.rounds().differences == ()
    site.delete_at_source("t")
    looked = site.round(write=False)
    assert (pending(looked), looked.is_in_step) == ({"paris.t"}, False)
    first = site.round()
    assert (pending(first), site.copies()) == ({"paris.t"}, ALL)
    too_soon = site.round(after_ms=CONFIRM_MS // 2)
    assert (pending(too_soon), site.copies()) == ({"paris.t"}, ALL)
    second = site.round()
    assert (done(second), second.is_in_step, site.copies()) == ({"paris.t"}, True, ALL - {"paris.t"})
    assert site.round().differences == ()


def test_a_look_changes_nothing(site: DeletionSite) -> None:
    site.delete_at_source("t")
    end = site.pair.target.log(inventory_topic_of(FLOW)).end_offset
    for _ in range(3):
        assert pending(site.round(write=False)) == {"paris.t"}
    assert (site.copies(), site.pair.target.log(inventory_topic_of(FLOW)).end_offset) == (ALL, end)


def test_more_topics_than_the_limit_are_kept_until_a_user_says_so(site: DeletionSite) -> None:
    site.delete_at_source("t", "u")
    for _ in range(3):
        report = site.round()
        assert (kept(report), site.copies()) == ({"paris.t": "over-limit", "paris.u": "over-limit"}, ALL)
        why = "(over-limit: 2 to delete, and the limit is 1: mirror apply --flow flow --max-deletions 2 deletes them)"
        assert next(report.lines()) == f"= topic paris.t is kept, without source topic t {why}"
        assert not site.inventory().created["paris.t"].deleting
    assert kept(site.round(limit=1)) == {"paris.t": "over-limit", "paris.u": "over-limit"}
    assert done(site.round(limit=2)) == {"paris.t", "paris.u"}


def test_topics_that_vanish_one_after_the_other_are_over_the_limit_too(site: DeletionSite) -> None:
    site.delete_at_source("t")
    assert done(site.rounds()) == {"paris.t"}
    site.delete_at_source("u")
    assert kept(site.rounds()) == {"paris.u": "over-limit"}
    assert done(site.round(limit=1)) == {"paris.u"}, "by hand"
    site.delete_at_source("v")
    assert kept(site.rounds()) == {"paris.v": "over-limit"}
    site.clock.shift_ms += LIMIT_PERIOD_MS
    assert done(site.round()) == {"paris.v"}


def test_a_source_that_shows_no_topics_deletes_nothing(site: DeletionSite) -> None:
    topics, site.pair.source.topics = site.pair.source.topics, {}
    for _ in range(3):
        assert set(kept(site.round(limit=9)).values()) == {"source-shows-no-topics"}
    assert site.copies() == ALL
    site.pair.source.topics = topics
    assert site.round().differences == ()


def test_a_broker_that_does_not_know_of_a_deletion_keeps_the_topic(site: DeletionSite) -> None:
    site.pair.source.lag(2)
    site.delete_at_source("t")
    assert set(kept(site.rounds()).values()) <= {"uncertain"}
    assert site.copies() == ALL
    site.pair.source.catch_up(2)
    assert pending(site.round()) == {"paris.t"}, "the first round without a doubt"
    assert done(site.round()) == {"paris.t"}


def test_a_broker_that_does_not_answer_keeps_the_topic(site: DeletionSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site.delete_at_source("t")

    def one_answers(*_: object, **__: object) -> Outcomes[int, dict[str, Any]]:
        return Outcomes({1: {}}, {2: KafkaTimeout("not now")})

    monkeypatch.setattr(site.source, "describe_topics_by_broker", one_answers)
    assert kept(site.rounds()) == {"paris.t": "uncertain"}
    assert site.copies() == ALL


def test_addresses_that_lead_to_several_clusters_delete_nothing(site: DeletionSite) -> None:
    site.delete_at_source("t")

    def move(call: Any) -> Action | None:
        named = call.api is Api.METADATA and [topic.name for topic in call.body.topics or ()] == ["t"]
        site.pair.source.cluster_id = "lyon" if named else site.pair.source.cluster_id
        return None

    site.pair.source.control.add(move)
    for _ in range(3):
        site.pair.source.cluster_id = "paris"
        assert kept(site.round()) == {"paris.t": "other-source-cluster"}
    assert site.copies() == ALL


def test_a_topic_that_may_not_be_described_any_more_is_kept(site: DeletionSite) -> None:
    refused = Action(errors={"t": errors.TOPIC_AUTHORIZATION_FAILED})

    def hide(call: Any) -> Action | None:
        """A listing leaves the topic out, a request by name is refused."""
        if call.api is not Api.METADATA:
            return None
        if call.body.topics is None:
            return Action(rewrite=_without_t)
        return refused

    site.pair.source.control.add(hide)
    assert kept(site.rounds()) == {"paris.t": "not-visible"}
    site.delete_at_source("t")
    assert kept(site.rounds()) == {"paris.t": "not-visible"}
    assert site.copies() == ALL


def _without_t(body: Any) -> Any:
    body.topics = tuple(topic for topic in body.topics if topic.name != "t")
    return body


def test_another_source_cluster_deletes_nothing(site: DeletionSite) -> None:
    site.delete_at_source("t")
    site.round()
    site.pair.source.cluster_id = "lyon"
    assert kept(site.rounds()) == {"paris.t": "other-source-cluster"}
    assert site.copies() == ALL


def test_a_topic_that_the_flow_has_not_created_is_kept(site: DeletionSite) -> None:
    site.pair.target.add_topic("paris.t")
    site.delete_at_source("t")
    assert kept(site.rounds(limit=9)) == {"paris.t": "not-created-by-flow"}
    assert site.copies() == ALL
    assert site.round().is_in_step, "it is not the flow's to delete"


def test_a_topic_that_the_flow_does_not_copy_any_more_is_kept(site: DeletionSite) -> None:
    site.select("[uv]")
    assert site.rounds().differences == ()
    site.delete_at_source("t")
    assert kept(site.rounds()) == {"paris.t": "not-selected"}


def test_a_source_topic_that_is_created_again_is_settled_first(site: DeletionSite) -> None:
    site.pair.write(b"a")
    site.pair.copy()
    site.pair.source.add_topic("t")
    assert site.rounds().differences == ()
    site.delete_at_source("t")
    report = site.rounds()
    assert (kept(report), report.is_in_step) == ({"paris.t": "source-recreated"}, False)
    site.pair.source.add_topic("t")
    site.pair.write(b"b")
    site.pair.copy(on_gap="skip")
    assert site.rounds().differences == ()
    site.delete_at_source("t")
    assert done(site.rounds()) == {"paris.t"}


def test_a_source_topic_that_was_created_again_is_settled_with_all_its_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = DeletionSite(FakePair(monkeypatch, partitions=2))
    site.prepare()
    pair = site.pair
    for partition in (0, 1):
        pair.write(b"a", partition=partition)
    pair.copy_all()
    pair.source.add_topic("t", 2)
    pair.write(b"b")
    pair.copy_all([pair.range_of(0)], on_gap="skip")
    assert site.rounds().differences == ()
    site.delete_at_source("t")
    assert kept(site.rounds()) == {"paris.t": "source-recreated"}
    site.close()


def test_a_source_topic_that_came_back_is_missing_for_the_first_time_again(site: DeletionSite) -> None:
    topic = site.pair.source.topics["t"]
    site.delete_at_source("t")
    site.round()
    site.pair.source.topics["t"] = topic
    assert site.round().differences == ()
    site.delete_at_source("t")
    assert pending(site.round()) == {"paris.t"}
    assert site.copies() == ALL


def test_a_refused_deletion_is_reported_and_tried_again(site: DeletionSite) -> None:
    refuse = site.pair.target.control.on(
        Api.DELETE_TOPICS, Action(errors={"paris.t": errors.TOPIC_AUTHORIZATION_FAILED}), times=1
    )
    assert refuse is not None
    site.delete_at_source("t")
    report = site.rounds()
    assert (kept(report), report.is_in_step) == ({"paris.t": "unauthorized"}, False)
    assert done(site.round()) == {"paris.t"}


def test_a_target_topic_that_the_user_has_deleted_is_as_good_as_deleted(site: DeletionSite) -> None:
    site.delete_at_source("t", "u")
    for name in ("paris.t", "paris.u"):
        del site.pair.target.topics[name]
    report = site.rounds()
    assert (report.differences, report.is_in_step) == ((), True)
    assert {name for name, one in site.inventory().created.items() if one.deleted_ms} == {"paris.t", "paris.u"}
    assert site.pair.target.calls(Api.DELETE_TOPICS) == []


def test_a_target_that_shows_no_topics_does_not_lift_the_limit(
    site: DeletionSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.delete_at_source("t", "u")
    site.round()
    monkeypatch.setattr(site.target, "describe_topics_by_broker", lambda *_, **__: Outcomes({}, {}))
    report = site.round()
    assert kept(report) == {"paris.t": "unavailable", "paris.u": "unavailable"}
    assert site.pair.target.calls(Api.DELETE_TOPICS) == []
    assert not any(one.deleted_ms for one in site.inventory().created.values())


def test_a_target_topic_that_may_not_be_described_keeps_only_itself(site: DeletionSite) -> None:
    refused = Action(errors={"paris.t": errors.TOPIC_AUTHORIZATION_FAILED})
    site.pair.target.control.on(Api.METADATA, refused, times=None)
    site.delete_at_source("t", "u")
    report = site.rounds()
    assert (kept(report), done(report)) == ({"paris.t": "unauthorized"}, {"paris.u"})


def test_an_earlier_run_is_fenced_and_deletes_nothing(site: DeletionSite) -> None:
    site.delete_at_source("t")
    earlier = site.deletions()
    earlier.round(site.rules())
    site.round(after_ms=0)
    site.clock.shift_ms += CONFIRM_MS
    with pytest.raises(Fenced):
        earlier.round(site.rules())
    assert site.copies() == ALL
    assert done(earlier.round(site.rules())) == {"paris.t"}


def test_a_source_that_does_not_answer_deletes_nothing(site: DeletionSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site.delete_at_source("t")
    site.round()
    monkeypatch.setattr("mirror.alignment.topic_deletions.TIMEOUT_MS", 1_000)
    site.pair.source.control.on(Api.METADATA, Action(silent=True), times=None)
    with pytest.raises(KafkaError):
        site.round()
    assert site.copies() == ALL


def test_what_is_known_about_a_deletion_is_forgotten_in_the_end(site: DeletionSite) -> None:
    site.delete_at_source("t")
    site.rounds()
    assert site.inventory().created["paris.t"].deleted_ms
    site.round(after_ms=SETTLE_MS)
    site.round(after_ms=LIMIT_PERIOD_MS)
    assert site.inventory().created.keys() == {"paris.u", "paris.v"}
