"""Runs that end between two steps of a creation or a deletion, and what is left of a deleted topic."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from mirror.alignment import topic_deletions
from mirror.alignment.creations import CreationRecorder
from mirror.alignment.deletion_decision import CONFIRM_MS, SETTLE_MS
from mirror.alignment.remains import remove_records
from mirror.client import Admin, TopicPartition
from mirror.errors import KafkaTimeout
from mirror.relay.progress.flow_topic import (
    FlowTopic,
    KeyValue,
    group_topic_of,
    offset_topic_of,
    status_topic_of,
    topic_of,
)
from mirror.relay.progress.progress_topic import ProgressTopic
from mirror.runtime.clock import SystemClock
from mirror.spark.preflight.topic_preparation import TopicPreparation
from mirror.timing import Timer
from mirror.wire.api import Api
from tests.alignment.deletions.deletion_site import DeletionSite, done, kept, pending
from tests.fakes import errors
from tests.fakes.control import Action
from tests.relay.fake_pair import FLOW, FakePair

TP = TopicPartition("paris.t", 0)


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeletionSite]:
    site = DeletionSite(FakePair(monkeypatch))
    yield site
    site.close()


def killed(*_: object, **__: object) -> None:
    raise Killed


def names_in(site: DeletionSite, topic: str) -> set[str]:
    """The keys that the flow's ``topic`` has now, as text."""
    keys = {}
    for record in FlowTopic(site.options, topic).records(Timer(SystemClock(), 10_000)):
        keys[bytes(record.key or b"").decode()] = record.value
    return {key for key, value in keys.items() if value is not None}


def test_a_run_that_was_killed_before_a_creation_is_continued(
    site: DeletionSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(TopicPreparation, "_create", killed)
        with pytest.raises(Killed):
            site.prepare()
    assert site.inventory().intents.keys() == {"paris.t", "paris.u", "paris.v"}
    assert site.copies() == set()
    site.prepare()
    inventory = site.inventory()
    assert inventory.intents == {}
    assert inventory.created.keys() == {"paris.t", "paris.u", "paris.v"}
    site.delete_at_source("t")
    assert done(site.rounds()) == {"paris.t"}


def test_a_topic_that_was_created_just_before_a_run_was_killed_is_never_deleted(
    site: DeletionSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(CreationRecorder, "confirm", killed)
        with pytest.raises(Killed):
            site.prepare()
    site.prepare()
    site.delete_at_source("t")
    report = site.rounds(limit=9)
    assert (kept(report), report.is_in_step) == ({"paris.t": "creation-interrupted"}, True)
    assert "paris.t" in site.copies()


def test_a_topic_that_others_create_meanwhile_is_not_the_flow_s(site: DeletionSite) -> None:
    def create_before(call: Any) -> Action | None:
        if call.api is Api.CREATE_TOPICS and "paris.t" in {topic.name for topic in call.body.topics}:
            site.pair.target.add_topic("paris.t")
        return None

    site.pair.target.control.add(create_before)
    site.prepare()
    assert site.inventory().created.keys() == {"paris.u", "paris.v"}
    site.delete_at_source("t")
    assert kept(site.rounds(limit=9)) == {"paris.t": "creation-interrupted"}


def test_a_creation_that_cannot_be_recorded_is_done_and_said(site: DeletionSite) -> None:
    site.prepare()
    for name in site.copies():
        del site.pair.target.topics[name]
    inventory = TopicPartition("mirror-inventory.flow.internal", 0)
    site.pair.target.control.on(Api.PRODUCE, Action(errors={inventory: errors.TOPIC_AUTHORIZATION_FAILED}), times=None)
    recorder = site.prepare()
    assert site.copies() == {"paris.t", "paris.u", "paris.v"}
    assert "cannot be recorded, so that they are never deleted by this flow" in recorder.problems[0]
    site.pair.target.control.clear()
    site.delete_at_source("t")
    assert kept(site.rounds(limit=9)) == {"paris.t": "not-created-by-flow"}


@pytest.mark.parametrize("sent", [False, True])
def test_a_deletion_that_was_interrupted_is_continued(
    site: DeletionSite, monkeypatch: pytest.MonkeyPatch, sent: bool
) -> None:
    site.prepare()
    site.delete_at_source("t")
    site.round()

    def interrupted(target: Admin, ids: list[uuid.UUID], _: int) -> None:
        assert site.inventory().created["paris.t"].deleting, "the intent is stored before"
        if sent:
            target.delete_topics_by_id(ids)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(topic_deletions, "_delete", interrupted)
        with pytest.raises(Killed):
            site.round()
    assert ("paris.t" in site.copies()) is not sent
    report = site.round()
    assert done(report) == (set() if sent else {"paris.t"})
    assert site.inventory().created["paris.t"].deleted_ms
    assert site.copies() == {"paris.u", "paris.v"}


def test_a_deletion_that_was_not_sent_is_given_up_once_the_source_topic_is_there(
    site: DeletionSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.prepare()
    topic = site.pair.source.topics["t"]
    site.delete_at_source("t")
    site.round()
    with monkeypatch.context() as patched:
        patched.setattr(topic_deletions, "_delete", killed)
        with pytest.raises(Killed):
            site.round()
    assert site.inventory().created["paris.t"].deleting
    site.pair.source.topics["t"] = topic
    assert site.round().differences == ()
    assert not site.inventory().created["paris.t"].deleting


def test_nothing_is_deleted_later_than_its_intent_is_valid(site: DeletionSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site.prepare()
    site.delete_at_source("t")
    site.round()
    monkeypatch.setattr("mirror.alignment.reconciler.FENCED_MS", 0)
    with pytest.raises(KafkaTimeout, match="not sent within 0 ms after its intent"):
        site.round()
    assert "paris.t" in site.copies()


def test_nothing_is_left_of_a_deleted_topic_and_a_later_one_begins_at_its_start(site: DeletionSite) -> None:
    site.prepare()
    site.pair.write(b"a", b"b")
    assert site.pair.copy().records == 2
    intent = KeyValue(b'{"group":"g","topic":"paris.t"}', b'{"v":1}')
    others = KeyValue(b'{"group":"g","topic":"paris.u"}', b'{"v":1}')
    FlowTopic(site.options, group_topic_of(FLOW)).write({1: intent, 2: others}, 10_000)
    site.pair.target.add_topic(status_topic_of(FLOW))
    reports = {
        n: KeyValue(key, b'{"v":1}') for n, key in enumerate([b"part/paris.t/0", b"part/paris.u/0", b"turn/t/0"])
    }
    FlowTopic(site.options, status_topic_of(FLOW)).write(reports, 10_000)
    kept_before = {name: names_in(site, name) for name in (topic_of(FLOW), offset_topic_of(FLOW))}
    assert all("paris.t" in "".join(keys) for keys in kept_before.values())
    site.delete_at_source("t")
    assert done(site.rounds()) == {"paris.t"}
    assert names_in(site, topic_of(FLOW)) == names_in(site, offset_topic_of(FLOW)) == set()
    assert names_in(site, group_topic_of(FLOW)) == {'{"group":"g","topic":"paris.u"}'}
    assert names_in(site, status_topic_of(FLOW)) == {"part/paris.u/0", "turn/t/0"}
    assert site.pair.committed() is None
    site.pair.source.add_topic("t")
    site.prepare()
    site.pair.write(b"c")
    assert site.pair.copy().records == 1
    assert site.pair.values() == [b"c"]


def delete_and_end(target: Admin, ids: list[uuid.UUID], _: int) -> None:
    target.delete_topics_by_id(ids)
    raise Killed


@pytest.mark.parametrize("interrupted", [("remove_records", killed), ("_delete", delete_and_end)])
def test_what_is_left_of_an_interrupted_deletion_is_removed_before_the_topic_is_created_again(
    site: DeletionSite, monkeypatch: pytest.MonkeyPatch, interrupted: tuple[str, Any]
) -> None:
    site.prepare()
    site.pair.write(b"a", b"b")
    site.pair.copy()
    site.delete_at_source("t")
    site.round()
    with monkeypatch.context() as patched:
        patched.setattr(topic_deletions, *interrupted)
        with pytest.raises(Killed):
            site.round()
    assert ProgressTopic(site.options, FLOW).read([TP]) != {}
    site.pair.source.add_topic("t")
    site.prepare()
    assert ProgressTopic(site.options, FLOW).read([TP]) == {}
    site.pair.write(b"c")
    assert site.pair.copy().records == 1
    assert site.rounds().differences == ()


def test_records_that_cannot_be_removed_are_removed_by_the_next_round(
    site: DeletionSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.prepare()
    site.pair.write(b"a")
    site.pair.copy()
    site.delete_at_source("t")
    site.round()

    def refused(*_: object) -> int:
        raise KafkaTimeout("not now")

    with monkeypatch.context() as patched:
        patched.setattr("mirror.alignment.topic_deletions.remove_records", refused)
        report = site.round()
    assert (done(report), report.is_in_step) == ({"paris.t"}, False)
    assert report.problems == ("what is stored about deleted topics could not be removed: not now",)
    assert ProgressTopic(site.options, FLOW).read([TP]) != {}
    assert site.round().is_in_step
    assert ProgressTopic(site.options, FLOW).read([TP]) == {}


@pytest.mark.parametrize("at", ["before the progress is read", "after it was read"])
def test_a_topic_that_is_created_again_while_the_last_records_are_removed_keeps_its_own(
    site: DeletionSite, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Five minutes after a deletion, records are removed once more; their keys are those of the new topic's."""
    site.prepare()
    site.delete_at_source("t")
    assert done(site.rounds()) == {"paris.t"}
    plain, created = FlowTopic.records, list[str]()

    def create_again() -> None:
        created.append("paris.t")
        site.pair.source.add_topic("t")
        site.prepare()
        site.pair.write(b"c")
        assert site.pair.copy().records == 1

    def records(topic: FlowTopic, timer: Timer) -> Iterator[Any]:
        begins = topic.tp.topic == topic_of(FLOW) and not created
        if begins and at.startswith("before"):
            create_again()
        yield from list(plain(topic, timer))
        if begins and not created:
            create_again()

    with monkeypatch.context() as patched:
        patched.setattr(FlowTopic, "records", records)
        site.round(after_ms=SETTLE_MS)
    assert created
    assert ProgressTopic(site.options, FLOW).read([TP]) != {}
    assert site.inventory().created["paris.t"].deleted_ms == 0, "it is the new one that the inventory has"


def test_topics_whose_names_begin_alike_keep_their_records(site: DeletionSite) -> None:
    site.prepare()
    topic = FlowTopic(site.options, topic_of(FLOW))
    topic.write({1: KeyValue(b'{"topic":"paris.t.x","partition":0}', b"{}")}, 10_000)
    assert remove_records(site.options, FLOW, lambda: {"paris.t"}, 10_000) == 0
    assert names_in(site, topic_of(FLOW)) == {'{"topic":"paris.t.x","partition":0}'}
    assert pending(site.round(after_ms=CONFIRM_MS)) == set()
