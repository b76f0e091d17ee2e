"""What to do with the internal topics of a Kafka Streams application."""

from __future__ import annotations

import pytest

from mirror.cluster.types import TopicPartition
from mirror.positions.internal_topics import InternalTopic, advice, kind_of
from mirror.positions.places import SourcePosition, TargetPosition
from mirror.relay.offsets.index import UNKNOWN, Place

NAME = "app-counts-changelog"
END = [SourcePosition(NAME, 0, 7), SourcePosition(NAME, 1, 9)]
THERE = {one: TargetPosition(TopicPartition(NAME, one.partition), Place.END, one.offset) for one in END}


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("app-counts-changelog", "changelog"),
        ("app-by-key-repartition", "repartition"),
        ("app-output", ""),
        ("other-counts-changelog", ""),
        ("app2-counts-changelog", ""),
    ],
)
def test_internal_topics_are_known_by_their_names(topic: str, kind: str) -> None:
    assert kind_of(topic, "app") == kind


def test_a_topic_that_is_copied_to_its_end_is_ready() -> None:
    assert advice("app", {NAME: END}, THERE, str) == [InternalTopic(NAME, "changelog", "copied to its end", True)]


def test_a_topic_that_is_not_copied_to_its_end_has_to_wait() -> None:
    found = {**THERE, END[1]: THERE[END[1]]._replace(place=Place.NOT_COPIED)}
    (one,) = advice("app", {NAME: END}, found, str)
    assert (one.is_ready, one.advice.startswith("partitions 1 are not copied to their ends yet")) == (False, True)


@pytest.mark.parametrize(
    ("topic", "words"),
    [(NAME, "its store begins empty"), ("app-by-key-repartition", "its records that are not processed yet are lost")],
)
def test_a_topic_that_is_not_copied_says_what_is_lost(topic: str, words: str) -> None:
    ends = [SourcePosition(topic, 0, 7)]
    found = {ends[0]: TargetPosition(None, *UNKNOWN)}
    (one,) = advice("app", {topic: ends}, found, lambda _: None)
    assert (one.is_ready, words in one.advice) == (False, True)


def test_a_topic_with_another_name_is_not_found_by_the_application() -> None:
    (one,) = advice("app", {NAME: END}, THERE, lambda topic: f"a.{topic}")
    assert (one.is_ready, f"copied as a.{NAME}" in one.advice) == (False, True)
