"""A flow's topic is followed: all of it once, then what is new, and all again if it is another. Fake brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirror.errors import KafkaTimeout
from mirror.relay.progress.flow_topic import FlowTopic
from mirror.relay.progress.followed_topic import FollowedTopic
from mirror.runtime.clock import SystemClock
from mirror.timing import Clock
from mirror.wire.api import Api
from mirror.wire.records import TRANSACTIONAL
from tests.fakes.clock import FakeClock
from tests.fakes.control import Action, ServerCall
from tests.relay.fake_pair import FakePair

TOPIC = "mirror-groups.f.internal"


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    return FakePair(monkeypatch)


@pytest.fixture
def followed(pair: FakePair) -> Iterator[FollowedTopic]:
    made = FollowedTopic(FlowTopic({"bootstrap.servers": pair.target.bootstrap}, TOPIC))
    yield made
    made.close()


def news(followed: FollowedTopic, clock: Clock | None = None) -> tuple[bool, list[bytes | None]]:
    found = followed.news(clock or SystemClock(), 10_000)
    assert found.error is None
    return found.again, [record.value for record in found.records]


def test_records_are_returned_once_without_those_that_are_not_committed(
    pair: FakePair, followed: FollowedTopic
) -> None:
    assert news(followed) == (True, []), "there is no topic"
    pair.target.add_topic(TOPIC)
    log = pair.target.log(TOPIC)
    log.append_values(b"1", b"2")
    assert news(followed) == (True, [b"1", b"2"])
    assert news(followed) == (False, [])
    log.append_values(b"x", attributes=TRANSACTIONAL, producer_id=7)
    log.append_values(b"3")
    assert news(followed) == (False, []), "a transaction is open"
    log.end_transaction(7, commit=False)
    assert news(followed) == (False, [b"3"])


def test_a_topic_that_was_made_again_is_read_from_its_beginning(pair: FakePair, followed: FollowedTopic) -> None:
    for value in (b"old", b"new"):
        pair.target.add_topic(TOPIC)
        pair.target.log(TOPIC).append_values(value)
        assert news(followed) == (True, [value])


def test_what_was_read_before_a_stall_is_not_read_again(pair: FakePair, followed: FollowedTopic) -> None:
    pair.target.add_topic(TOPIC)
    log = pair.target.log(TOPIC)
    values = [letter * 600_000 for letter in (b"1", b"2", b"3")]  # a fetch has at most 1 MiB
    for value in values:
        log.append_values(value)
    fetches = 0

    def stalls(call: ServerCall) -> Action | None:
        nonlocal fetches
        fetches += call.api is Api.FETCH
        return Action(close="before") if fetches > 1 and call.api is Api.FETCH else None

    pair.target.control.add(stalls)
    found = followed.news(pair.target.clock, 2_000)
    assert isinstance(found.error, KafkaTimeout)
    assert [record.value for record in found.records] == values[:1]
    pair.target.control.clear()
    assert news(followed) == (False, values[1:])


@pytest.fixture
def waiting(pair: FakePair) -> Iterator[FollowedTopic]:
    made = FollowedTopic(FlowTopic({"bootstrap.servers": pair.target.bootstrap}, TOPIC), wait_ms=200)
    yield made
    made.close()


def test_what_is_new_is_waited_for_with_one_request(pair: FakePair, waiting: FollowedTopic) -> None:
    assert news(waiting) == (True, []), "there is no topic, and it is not waited for"
    pair.target.add_topic(TOPIC)
    log = pair.target.log(TOPIC)
    log.append_values(b"1")
    assert news(waiting) == (True, [b"1"])
    asked = set[Api]()
    pair.target.control.add(lambda call: asked.add(call.api))
    assert news(waiting) == (False, [])
    for value in (b"2", b"3"):
        log.append_values(value)
        assert news(waiting) == (False, [value])
    assert asked == {Api.FETCH}


def test_it_is_waited_on_after_the_topic_was_checked(pair: FakePair, waiting: FollowedTopic) -> None:
    pair.target.add_topic(TOPIC)
    clock = FakeClock()
    assert news(waiting, clock) == (True, [])
    for value in (b"1", b"2"):
        assert news(waiting, clock) == (False, [])
        clock.advance(10_000)
        assert news(waiting, clock) == (False, []), "the topic is checked"
        assert news(waiting, clock) == (False, [])
        pair.target.log(TOPIC).append_values(value)
        assert news(waiting, clock) == (False, [value])


def test_a_topic_that_is_waited_at_is_noticed_when_it_was_made_again(pair: FakePair, waiting: FollowedTopic) -> None:
    for value in (b"old", b"new"):
        pair.target.add_topic(TOPIC)
        pair.target.log(TOPIC).append_values(value)
        again, values = news(waiting)
        while not values:
            again, values = news(waiting)
        assert (again, values) == (True, [value])
        assert news(waiting) == (False, [])


def test_a_wait_ends_when_it_is_woken(pair: FakePair) -> None:
    pair.target.add_topic(TOPIC)
    made = FollowedTopic(FlowTopic({"bootstrap.servers": pair.target.bootstrap}, TOPIC), wait_ms=29_000)
    assert news(made) == (True, [])
    made.wake()
    began_ms = pair.target.clock.now()
    assert news(made) == (False, [])
    assert pair.target.clock.now() - began_ms < 10_000
    made.close()


def test_a_partition_that_is_waited_at_and_cannot_be_read_is_an_error(pair: FakePair, waiting: FollowedTopic) -> None:
    pair.target.add_topic(TOPIC)
    assert news(waiting) == (True, [])
    pair.target.control.add(lambda _: Action(close="before"))
    with pytest.raises(KafkaTimeout):
        waiting.news(pair.target.clock, 1_000)


@pytest.mark.parametrize("was_read", [False, True])
def test_each_call_is_an_error_until_all_was_read(pair: FakePair, waiting: FollowedTopic, *, was_read: bool) -> None:
    """A wait at a target that does not answer would return nothing, as if nothing had been appended."""
    pair.target.add_topic(TOPIC)
    clock = FakeClock()
    if was_read:
        assert news(waiting, clock) == (True, [])
        clock.advance(10_000)
    pair.target.control.add(lambda _: Action(silent=True))
    for _ in range(2):
        with pytest.raises(KafkaTimeout):
            waiting.news(clock, 300)
