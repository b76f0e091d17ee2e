"""What shows a target topic to be a flow's own, on a cluster in memory, and what the evidence costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mirror.alignment import owned_topics
from mirror.alignment.owned_topics import OwnedTopics, adopt
from mirror.alignment.ownership import Standing
from mirror.client import Admin, TopicPartition
from mirror.relay.progress.flow_topic import inventory_topic_of
from mirror.wire.api import Api
from mirror.wire.records import TRANSACTIONAL
from tests.fakes import errors
from tests.fakes.control import Action
from tests.relay.fake_pair import FLOW, FakePair

COPY = "paris.t"


class Seen:
    """The standing of ``paris.t``, as a run that begins now sees it."""

    def __init__(self, pair: FakePair) -> None:
        self.pair = pair
        self.options: dict[str, Any] = {"bootstrap.servers": pair.target.bootstrap, "default.api.timeout.ms": 5_000}
        self.admin = Admin(self.options)
        pair.target.add_topic(inventory_topic_of(FLOW))

    def standing(self, owned: OwnedTopics | None = None) -> Standing:
        topics = self.admin.describe_topics([COPY])
        return (owned or OwnedTopics(FLOW, self.options)).standings(self.admin, topics)[COPY]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    made = Seen(FakePair(monkeypatch))
    yield made
    made.admin.close()


def test_a_topic_without_records_is_empty_and_one_with_records_of_others_foreign(seen: Seen) -> None:
    assert seen.standing() is Standing.EMPTY
    seen.pair.log().append_values(b"of others")
    assert seen.standing() is Standing.FOREIGN


def test_a_topic_that_others_have_emptied_held_records(seen: Seen) -> None:
    seen.pair.log().append_values(b"of others", b"too")
    seen.pair.log().delete_before(2)
    assert seen.standing() is Standing.FOREIGN


def test_progress_makes_it_the_flow_s_until_it_is_made_again(seen: Seen) -> None:
    seen.pair.write(b"1")
    seen.pair.copy()
    assert seen.standing() is Standing.OWNED
    seen.pair.made_again(offsets_too=False)
    seen.pair.log().append_values(b"of others")
    assert seen.standing() is Standing.FOREIGN


def test_a_flow_that_lost_its_committed_offsets_stays_the_owner(seen: Seen) -> None:
    seen.pair.write(b"1")
    seen.pair.copy()
    seen.pair.target.groups.clear()
    assert seen.standing() is Standing.OWNED, "the progress topic has it"


def test_what_only_a_killed_first_attempt_has_appended_is_no_record(seen: Seen) -> None:
    seen.pair.aborted_write(b"aborted")
    assert seen.standing() is Standing.EMPTY
    seen.pair.log().append_values(b"of others")
    assert seen.standing() is Standing.FOREIGN


def test_a_person_adopts_the_topic_that_there_is(seen: Seen) -> None:
    seen.pair.log().append_values(b"of others")
    adopt(seen.options, FLOW, seen.admin.describe_topics([COPY]))
    assert seen.standing() is Standing.OWNED
    seen.pair.made_again()
    assert seen.standing() is Standing.EMPTY


def test_what_is_owned_is_asked_about_once(seen: Seen) -> None:
    seen.pair.write(b"1")
    seen.pair.copy()
    owned = OwnedTopics(FLOW, seen.options)
    assert seen.standing(owned) is Standing.OWNED
    before = len(seen.pair.target.calls(Api.OFFSET_FETCH)), len(seen.pair.target.calls(Api.FETCH))
    assert seen.standing(owned) is Standing.OWNED
    assert (len(seen.pair.target.calls(Api.OFFSET_FETCH)), len(seen.pair.target.calls(Api.FETCH))) == before
    seen.pair.made_again()
    assert seen.standing(owned) is Standing.EMPTY, "an id is never another topic's"


@pytest.mark.parametrize("api", [Api.METADATA, Api.LIST_OFFSETS, Api.FETCH])
def test_a_flow_that_may_not_read_its_inventory_owns_what_it_has_progress_in(seen: Seen, api: Api) -> None:
    inventory = inventory_topic_of(FLOW)
    adopt(seen.options, FLOW, seen.admin.describe_topics([COPY]))
    refused = errors.TOPIC_AUTHORIZATION_FAILED
    denied: dict[TopicPartition | str, int] = {inventory: refused, TopicPartition(inventory, 0): refused}
    seen.pair.target.control.on(api, Action(errors=denied), times=None)
    assert seen.standing() is Standing.EMPTY
    seen.pair.write(b"1")
    seen.pair.copy()
    assert seen.standing() is Standing.OWNED


def test_a_killed_first_attempt_at_many_topics_refuses_none_of_them(seen: Seen) -> None:
    names = [f"paris.u{number}" for number in range(30)]
    for name in names:
        seen.pair.target.add_topic(name)
        seen.pair.target.log(name).append_values(b"aborted", attributes=TRANSACTIONAL, producer_id=9)
        seen.pair.target.log(name).end_transaction(9, commit=False)
    topics = seen.admin.describe_topics(names)
    assert OwnedTopics(FLOW, seen.options).standings(seen.admin, topics) == dict.fromkeys(names, Standing.EMPTY)


def test_what_there_is_no_time_to_search_is_searched_by_the_next_preparation(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen.pair.aborted_write(b"aborted")
    owned = OwnedTopics(FLOW, seen.options)
    with monkeypatch.context() as no_time:
        no_time.setattr(owned_topics, "_SEARCH_MS", 0)
        assert seen.standing(owned) is Standing.UNREAD
    assert seen.standing(owned) is Standing.EMPTY
    seen.pair.log().append_values(b"of others")
    assert seen.standing(owned) is Standing.FOREIGN
    monkeypatch.setattr(owned_topics, "_SEARCH_MS", 0)
    assert seen.standing(owned) is Standing.FOREIGN, "it takes no time any more"


def test_a_partition_without_a_leader_does_not_say_what_it_holds(seen: Seen) -> None:
    seen.pair.target.add_topic(COPY, 2)
    leader = seen.pair.log().leader
    seen.pair.target.move(COPY, 0, leader + 1)
    assert seen.standing() is Standing.UNREAD
    seen.pair.log(1).append_values(b"of others")
    assert seen.standing() is Standing.FOREIGN
    seen.pair.target.add_topic(COPY, 2)
    assert seen.standing() is Standing.EMPTY


def test_an_inventory_without_a_leader_keeps_only_what_it_alone_shows_from_being_copied(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owned_topics, "_TIMEOUT_MS", 500)
    seen.pair.log().append_values(b"of others")
    adopt(seen.options, FLOW, seen.admin.describe_topics([COPY]))
    inventory = inventory_topic_of(FLOW)
    leader = seen.pair.target.log(inventory).leader
    seen.pair.target.move(inventory, 0, leader + 1)
    assert seen.standing() is Standing.UNREAD
    seen.pair.target.move(inventory, 0, leader)
    assert seen.standing() is Standing.OWNED
    seen.pair.made_again()
    seen.pair.write(b"1")
    seen.pair.copy()
    seen.pair.target.move(inventory, 0, leader + 1)
    assert seen.standing() is Standing.OWNED, "its progress shows it"


def test_an_open_transaction_does_not_say_what_it_holds(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned_topics, "_EACH_SEARCH_MS", 200)
    seen.pair.log().append_values(b"open", attributes=TRANSACTIONAL, producer_id=9)
    assert seen.standing() is Standing.UNREAD
    seen.pair.log().end_transaction(9, commit=False)
    assert seen.standing() is Standing.EMPTY
