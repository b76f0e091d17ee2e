"""Brokers, topics and leaders as of the last response, and when to request them again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.cluster.topic_state import Leader
from mirror.cluster.types import TopicPartition
from mirror.errors import AuthenticationFailed, ConnectionFailed, KafkaError, UnsupportedVersion
from mirror.wire.messages.metadata import MetadataTopic
from tests.cluster.metadata_probes import ID, OTHER_ID, T0, Asked, known, topic


def test_only_wanted_topics_are_asked_for_and_once() -> None:
    asked = Asked()
    asked.metadata.want(["b", "a"])
    assert sorted(map(str, asked.ask())) == ["a", "b"]
    asked.quiet()
    asked.answer(topic(1, 0, name="a"), topic(2, 0, name="b"), topic(2, 0, name="never wanted"))
    assert asked.metadata.leader(TopicPartition("a", 0)) == Leader(1, 0)
    assert asked.metadata.leader(TopicPartition("never wanted", 0)) is None
    assert asked.metadata.cluster_id == "cluster"
    assert asked.metadata.controller == 1
    assert asked.quiet() == 300_000


def test_a_new_topic_is_asked_for_at_once() -> None:
    asked = known()
    asked.metadata.want(["other"])
    assert "other" in asked.ask()


def test_a_topic_that_is_added_while_a_request_is_in_flight_waits_for_no_backoff() -> None:
    asked = Asked()
    asked.metadata.want(["t"])
    asked.ask()
    asked.metadata.want(["other"])
    asked.answer(topic(1, 5))
    assert "other" in asked.ask()
    asked.answer(topic(1, 5), topic(1, 5, name="other"))
    asked.metadata.request_update()
    assert asked.quiet() > 0


def test_an_older_leader_epoch_changes_nothing() -> None:
    asked = known(topic(1, 5))
    asked.update(topic(2, 4))
    assert asked.metadata.leader(T0) == Leader(1, 5)
    asked.update(topic(2, 5))
    assert asked.metadata.leader(T0) == Leader(2, 5)
    asked.update(topic(1, 6))
    assert asked.metadata.leader(T0) == Leader(1, 6)


def test_an_epoch_that_no_other_broker_reports_is_not_believed_for_ever() -> None:
    """It was a lie, or the brokers lost it; but those that lag now and then change nothing."""
    asked = known(topic(1, 2**31 - 1))
    for _ in range(9):
        asked.update(topic(2, 6))
    asked.update(topic(1, 2**31 - 1))
    for _ in range(9):
        asked.update(topic(2, 6))
        assert asked.metadata.leader(T0) == Leader(1, 2**31 - 1)
    asked.update(topic(2, 6))
    assert asked.metadata.leader(T0) == Leader(2, 6)


def test_a_leader_older_than_a_record_that_was_read_is_no_leader() -> None:
    """A broker that lags takes itself for the leader that it was, and would say that the record is not in the log."""
    asked = Asked()
    asked.metadata.want(["t"])
    asked.metadata.record_epoch_seen(T0, 5, ID)
    asked.ask()
    asked.answer(topic(1, 4))
    for answer, leader in ((topic(1, 4), None), (topic(2, 5), Leader(2, 5))):
        assert asked.metadata.leader(T0) is None
        asked.now += 1_000
        assert asked.ask() == ["t"], "by itself"
        asked.answer(answer)
        assert asked.metadata.leader(T0) == leader
    asked.metadata.record_epoch_seen(T0, 6, ID)
    assert asked.metadata.leader(T0) is None
    asked.now += 1_000
    assert asked.ask() == ["t"], "by itself"


@pytest.mark.parametrize("first", [True, False])
def test_a_record_of_another_topic_says_nothing_of_the_leaders_of_this_one(first: bool) -> None:
    asked = Asked() if first else known(topic(1, 4))
    asked.metadata.want(["t"])
    asked.metadata.record_epoch_seen(T0, 5, OTHER_ID)
    if first:
        asked.ask()
        asked.answer(topic(1, 4))
    assert asked.metadata.leader(T0) == Leader(1, 4)


def test_a_record_whose_epoch_no_broker_knows_of_is_forgotten_in_the_end() -> None:
    asked = known(topic(1, 4))
    asked.metadata.record_epoch_seen(T0, 5, ID)
    for _ in range(10):
        assert asked.metadata.leader(T0) is None
        asked.update(topic(1, 4))
    assert asked.metadata.leader(T0) == Leader(1, 4)
    asked.update(topic(2, 4))
    assert asked.metadata.leader(T0) == Leader(2, 4)


def test_a_topic_made_again_forgets_the_old_ones_epochs() -> None:
    asked = known(topic(1, 50))
    asked.update(topic(2, 0, topic_id=OTHER_ID))
    assert asked.metadata.leader(T0) == Leader(2, 0)
    assert asked.metadata.topic_id("t") == OTHER_ID
    assert asked.metadata.topic_name(OTHER_ID) == "t"


def test_a_partition_without_a_leader_is_asked_for_again() -> None:
    asked = known(topic(-1, 5))
    assert asked.metadata.leader(T0) is None
    assert 0 < asked.quiet() <= 120
    asked.now += 120
    asked.ask()
    asked.answer(topic(2, 6))
    assert asked.metadata.leader(T0) == Leader(2, 6)
    assert asked.quiet() == 300_000


def test_a_leader_that_is_no_known_broker_counts_as_none() -> None:
    assert known(topic(9, 5)).metadata.leader(T0) is None


def test_a_missing_topic_is_said_to_be_missing_and_asked_for_with_growing_backoff() -> None:
    asked = known(MetadataTopic(3, "t"))
    waits = []
    for _ in range(8):
        waits.append(asked.quiet())
        asked.now += waits[-1]
        asked.metadata.want(["t"])
        asked.ask()
        asked.answer(MetadataTopic(3, "t"))
    for number, wait in enumerate(waits):
        assert 80 * min(10, 2**number) <= wait <= min(1_000, 120 * 2**number), waits
    why = asked.metadata.why_unknown(T0)
    assert str(why).startswith("topic 't' does not exist: UNKNOWN_TOPIC_OR_PARTITION (error 3)")


def test_a_missing_topic_that_nobody_wants_any_more_is_no_longer_asked_for() -> None:
    asked = known(MetadataTopic(3, "t"))
    asked.now += 1_000
    asked.ask()
    asked.answer(MetadataTopic(3, "t"))
    assert asked.quiet() > 200_000
    asked.now += 300_000
    assert asked.ask() == []
    asked.answer()
    asked.metadata.want(["t"])
    assert asked.ask() == ["t"], "until somebody comes back to it: then at once"


def test_a_partition_beyond_the_last_is_said_to_be_missing() -> None:
    why = known().metadata.why_unknown(TopicPartition("t", 4))
    assert "topic 't' has 1 partitions" in str(why)


def test_a_topic_that_goes_loses_its_leaders() -> None:
    asked = known()
    asked.update(MetadataTopic(3, "t"))
    assert asked.metadata.leader(T0) is None


def test_another_error_keeps_the_leaders_that_are_known() -> None:
    asked = known()
    asked.metadata.want(["t"])
    asked.update(MetadataTopic(29, "t"))
    assert asked.metadata.leader(T0) == Leader(1, 5)
    assert asked.metadata.why_unknown(T0) is not None


def test_a_leader_reported_by_a_broker_itself_is_used_without_asking() -> None:
    """KIP-951."""
    asked = known()
    assert asked.metadata.use_leader(T0, Leader(2, 6))
    assert asked.metadata.leader(T0) == Leader(2, 6)


@pytest.mark.parametrize(
    "hint", [Leader(2, 5), Leader(2, 4), Leader(9, 6)], ids=["same epoch", "older", "unknown node"]
)
def test_a_hint_that_is_no_news_is_passed_over(hint: Leader) -> None:
    asked = known()
    assert not asked.metadata.use_leader(T0, hint)
    assert asked.metadata.leader(T0) == Leader(1, 5)
    assert not asked.metadata.use_leader(TopicPartition("unknown", 0), replace(hint, epoch=99))


def test_failures_are_retried_with_backoff_and_success_resets_attempts() -> None:
    asked = Asked()
    waits = []
    for _ in range(7):
        asked.ask()
        asked.request.on_failure(ConnectionFailed("no"), asked.now)
        waits.append(asked.quiet())
        asked.now += waits[-1]
    for number, wait in enumerate(waits):
        assert 80 * min(10, 2**number) <= wait <= min(1_000, 120 * 2**number), waits
    assert isinstance(asked.metadata.last_error, ConnectionFailed)
    asked.ask()
    asked.answer()
    assert asked.metadata.last_error is None
    asked.metadata.request_update()
    assert 80 <= asked.quiet() <= 120, "updates keep their distance, but the failures are forgotten"


def test_metadata_grows_old() -> None:
    asked = known()
    asked.now += 299_999
    assert asked.quiet() == 1
    asked.now += 1
    assert asked.ask() == ["t"]


def test_brokers_too_old_for_us_are_hopeless() -> None:
    asked = Asked()
    asked.ask()
    assert asked.metadata.fatal_error is None
    asked.request.on_failure(UnsupportedVersion("too old"), asked.now)
    assert isinstance(asked.metadata.fatal_error, UnsupportedVersion)


def test_one_broker_that_cannot_be_trusted_makes_nothing_hopeless() -> None:
    """Else all partitions of the cluster would fail with its certificate."""
    asked = Asked()
    asked.ask()
    asked.answer(brokers=3)

    def refused() -> KafkaError | None:
        asked.metadata.request_update()
        asked.now += 2_000
        asked.ask()
        asked.request.on_failure(AuthenticationFailed("certificate has expired"), asked.now)
        return asked.metadata.fatal_error

    assert refused() is None
    assert refused() is None
    asked.metadata.request_update()
    asked.now += 2_000
    asked.ask()
    asked.answer(brokers=3)
    assert [refused() is None for _ in range(4)] == [True, True, False, False]


def test_success_resets_attempts() -> None:
    """After failures whose waits have grown to a second, and an answer, the first wait is the shortest again."""
    asked = known()
    for _ in range(2):
        asked.metadata.request_update()
        waits = []
        asked.now += 1_000
        for _ in range(5):
            asked.ask()
            asked.request.on_failure(ConnectionFailed("gone"), asked.now)
            waits.append(asked.quiet())
            asked.now += waits[-1]
        for number, wait in enumerate(waits):
            assert 80 * min(10, 2**number) <= wait <= min(1_000, 120 * 2**number), waits
        asked.ask()
        asked.answer(topic(1, 5))
