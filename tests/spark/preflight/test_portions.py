"""Many topics in few requests, each of a size that a controller takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.client import Admin, Outcomes
from mirror.errors import BrokerError, KafkaTimeout
from mirror.spark.preflight import portions as portions_module
from mirror.spark.preflight.portions import MAX_RECORDS, THROTTLING_QUOTA_EXCEEDED, portions, send_in_portions
from mirror.spark.preflight.target_topics import prepare_topics
from tests.spark.planning.planner_harness import PlannerHarness
from tests.spark.planning.test_range_planner import flow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.client import NewTopic


def test_portions_are_as_large_as_they_may_be_and_one_that_is_larger_goes_alone() -> None:
    assert list(portions({})) == []
    assert list(portions({"a": 2, "b": 2, "c": 1, "d": 9, "e": 1}, 4)) == [["a", "b"], ["c"], ["d"], ["e"]]


def test_failures_are_collected_and_the_other_portions_are_sent() -> None:
    refused = BrokerError("no", 44)
    asked = list[list[str]]()

    def ask(names: list[str]) -> Outcomes[str, object]:
        asked.append(names)
        return Outcomes({}, {"a": refused}) if names == ["a"] else Outcomes(dict.fromkeys(names), {})

    assert send_in_portions({"a": 1, "b": 1}, ask, 1) == {"a": refused}
    assert asked == [["a"], ["b"]]


def test_after_a_timeout_no_more_portions_are_sent() -> None:
    late = KafkaTimeout("creating topic 'a' did not succeed within 60000 ms")
    asked = list[list[str]]()

    def ask(names: list[str]) -> Outcomes[str, object]:
        asked.append(names)
        return Outcomes({}, dict.fromkeys(names, late))

    assert send_in_portions({"a": 1, "b": 1, "c": 1}, ask, 2) == {"a": late, "b": late, "c": late}
    assert asked == [["a", "b"]]


def throttled(name: str) -> KafkaTimeout:
    late = KafkaTimeout(f"creating topic {name!r} did not succeed within 60000 ms: throttled")
    late.__cause__ = BrokerError("throttled", THROTTLING_QUOTA_EXCEEDED)
    return late


def test_what_a_quota_holds_back_is_sent_again_while_it_lets_something_pass() -> None:
    refused, unsent = BrokerError("no", 44), KafkaTimeout("not sent")
    answers: list[Outcomes[str, object]] = [
        Outcomes({"a": None}, {"b": throttled("b"), "c": throttled("c"), "d": refused}),
        *[Outcomes({}, {"b": throttled("b"), "c": unsent})] * (portions_module._MOST_CALLS_IN_VAIN - 1),
        Outcomes({"b": None}, {"c": throttled("c")}),
        Outcomes({"c": None}, {}),
    ]
    asked, noted = list[list[str]](), list[int]()

    def ask(names: list[str]) -> Outcomes[str, object]:
        asked.append(names)
        return answers[len(asked) - 1]

    failed = send_in_portions(dict.fromkeys("abcd", 1), ask, on_throttled=noted.append)
    assert failed == {"d": refused}
    assert (asked[0], asked[1], asked[-1]) == (["a", "b", "c", "d"], ["b", "c"], ["c"])
    assert noted == [len(names) for names in asked[1:]]


def test_a_quota_that_lets_nothing_pass_is_not_waited_for_for_ever() -> None:
    asked = list[list[str]]()

    def ask(names: list[str]) -> Outcomes[str, object]:
        asked.append(names)
        return Outcomes({}, {name: throttled(name) for name in names})

    assert send_in_portions({"a": 1, "b": 1}, ask).keys() == {"a", "b"}
    assert len(asked) == 1 + portions_module._MOST_CALLS_IN_VAIN


def test_no_request_of_a_preparation_is_too_large_for_a_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = PlannerHarness()
    for number in range(6):
        pair.a.add_topic(f"new-{number}", [0] * 800, configs={"retention.ms": "1"})
        pair.a.add_topic(f"old-{number}", [0] * 800)
        pair.b.add_topic(f"a.old-{number}", [0])
    create, add = Admin.create_topics, Admin.create_partitions
    created, added = list[int](), list[int]()

    def creating(self: Admin, topics: Iterable[NewTopic], **options: bool) -> object:
        wanted = list(topics)
        created.append(sum(1 + one.partitions + len(one.configs) for one in wanted))
        return create(self, wanted, **options)

    def adding(self: Admin, totals: Mapping[str, int], **options: bool) -> object:
        added.append(sum(totals.values()) - len(totals))
        return add(self, totals, **options)

    monkeypatch.setattr(Admin, "create_topics", creating)
    monkeypatch.setattr(Admin, "create_partitions", adding)
    pair.own(*(f"a.old-{number}" for number in range(6)))
    targets = prepare_topics(flow(topics=[".*"]), pair.sides(), owned=pair.owned).targets
    assert set(targets.copyable.values()) == {800}
    assert (len(targets.copyable), targets.obstacles) == (12, {})
    assert len(created) == 6, "three portions, the progress topic, the offset topic, and the status topic"
    assert max(created + added) <= MAX_RECORDS
