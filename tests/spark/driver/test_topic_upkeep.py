"""One thread finds what is new, compares all topics, and keeps the assignments of tasks up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

import pytest

from mirror.backoff import Backoff
from mirror.client import Admin
from mirror.errors import KafkaTimeout
from mirror.spark.discovery import topic_watch
from mirror.spark.driver import topic_upkeep
from mirror.spark.driver.topic_upkeep import TopicUpkeep
from mirror.spark.preflight.target_topics import prepare_new_topics, prepare_topics
from mirror.spark.tasks.options import FlowOptions
from tests.polling import eventually
from tests.spark.flow_harness import FlowHarness
from tests.spark.observed import sides_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror.client import TopicDescription
    from mirror.spark.driver.copy_jobs import FollowedJob
    from mirror.spark.driver.rounds.outages import Outages
    from mirror.spark.ledger.topic_obstacles import TargetTopics


class Site(FlowHarness):
    """A stream of two fake clusters, whose driver has begun to copy: it is the job and the outages, too."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, refresh_ms: int) -> None:
        super().__init__(folder)
        monkeypatch.setattr(topic_upkeep, "POLL_INTERVAL_MS", 20)
        monkeypatch.setattr(topic_upkeep, "_TARGET_MS", 20)
        self.a.add_topic("orders", [10, 20])
        with self.config.open("a") as file:
            file.write(f"refresh-ms = {refresh_ms}\n")
        self.source, self.target = (Admin({"bootstrap.servers": f"{name}:1"}) for name in "ab")
        self.loaded, self.flow = FlowOptions(self.config, "f", folder / "run-1").load()
        self.targets = prepare_topics(self.flow, sides_of(self.source, self.target)).targets
        self.warned, self.assigned, self.updates, self.refreshed = list[str](), set[str](), 0, 0
        self.fails = False

    def upkeep(self) -> TopicUpkeep:
        return TopicUpkeep(
            self.loaded,
            self.flow,
            self.targets,
            self.prepare,
            lambda *_: None,
            cast("FollowedJob", self),
            self.warned.append,
            cast("Outages", self),
        )

    def prepare(self, topics: Mapping[str, TopicDescription], gone: Collection[str] = ()) -> TargetTopics:
        found = prepare_new_topics(self.flow, sides_of(self.source, self.target), self.targets, topics)
        self.targets = found.targets.without(gone)
        return self.targets

    def assign(self, targets: TargetTopics, *_: object) -> None:
        self.assigned = set(targets.copyable)

    def update(self) -> None:
        self.updates += 1
        if self.fails:
            raise KafkaTimeout("cluster b does not answer")

    def refresh(self, targets: TargetTopics) -> None:
        assert targets == self.targets
        self.refreshed += 1

    def failed(self, subject: str, error: BaseException) -> bool:
        del subject, error
        return False

    def recovered(self, subject: str) -> None: ...


@pytest.mark.parametrize("refresh_ms", [1_000, 60_000])
def test_new_topics_are_discovered_and_what_could_not_be_created_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refresh_ms: int
) -> None:
    """The first is found by discovery, the second by a comparison of all topics."""
    site = Site(tmp_path, monkeypatch, refresh_ms)
    site.b.set_moods({"refused": '{"a.orders-late": "not now"}'})
    with site.upkeep():
        site.a.add_topic("orders-new", [5]).add_topic("orders-late", [5])
        eventually(lambda: "orders-new" in site.assigned, what="the new topic")
        site.b.set_moods({})
        if refresh_ms == 1_000:
            eventually(lambda: "orders-late" in site.assigned, what="the topic that could not be created")
        else:
            assert site.refreshed == 0
        eventually(lambda: site.updates > 5, what="the updates of the assignments")
    assert site.warned == []


@pytest.mark.parametrize("start_over", [False, True])
def test_a_target_topic_that_is_deleted_is_reported_and_made_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, start_over: bool
) -> None:
    site = Site(tmp_path, monkeypatch, 60_000)
    site.flow = site.flow.model_copy(update={"on_target_recreated": "start-over" if start_over else "fail"})
    with site.upkeep():
        site.target.delete_topics(["a.orders"])
        eventually(lambda: site.refreshed, what="a comparison of all topics")
        assert "a.orders" in site.target.describe_topics(["a.orders"])
    (line,) = site.warned
    assert line.startswith("target topic a.orders was deleted, with what was copied into it: ")
    assert ("set on-target-recreated" in line) is not start_over


def test_target_topics_that_are_deleted_are_made_again_during_a_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of what a comparison has found was found before."""
    monkeypatch.setattr(topic_watch, "_MOST_PREPARED", 1)
    site = Site(tmp_path, monkeypatch, 60_000)
    site.flow = site.flow.model_copy(update={"on_target_recreated": "start-over"})
    for name in ("orders-1", "orders-2"):
        site.a.add_topic(name, [5])
    upkeep = site.upkeep()
    watch, sides = upkeep._watch, sides_of(site.source, site.target)
    assert watch.compare(sides), "one of two is left"
    site.target.delete_topics(["a.orders", "a.orders-1"])
    for _ in range(2):
        upkeep._check_target(sides.again())
    (line,) = site.warned
    assert line == (
        "target topics a.orders, a.orders-1 were deleted, with what was copied into them: made again, their partitions"
        " are copied from the flow's start (on-target-recreated)"
    )
    while watch.compare(sides.again()):
        pass
    names = ["a.orders", "a.orders-1", "a.orders-2"]
    assert site.target.describe_topics(names).keys() == set(names)


def test_new_topics_do_not_wait_for_a_comparison_that_has_much_to_prepare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_watch, "_MOST_PREPARED", 1)
    site, prepared = Site(tmp_path, monkeypatch, 1_000), list[list[str]]()
    site.b.set_moods({"refused": '{"a.orders-1": "not now", "a.orders-2": "not now"}'})
    prepare = site.prepare

    def noted(topics: Mapping[str, TopicDescription], gone: Collection[str] = ()) -> TargetTopics:
        prepared.append(sorted(topics))
        if prepared[-1] == ["orders-1"]:
            site.a.add_topic("orders-new", [5])
        return prepare(topics, gone)

    site.a.add_topic("orders-1", [5]).add_topic("orders-2", [5])
    site.prepare = noted  # type: ignore[method-assign]
    with site.upkeep():
        eventually(lambda: ["orders-2"] in prepared, what="the rest of what the comparison has found")
    assert prepared[0] == ["orders-1", "orders-2"], "they were discovered"
    first = prepared.index(["orders-1"])
    assert prepared[first : first + 3] == [["orders-1"], ["orders-new"], ["orders-2"]]


def test_an_error_of_several_steps_is_reported_once_and_met_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-580: a listing of all topics that fails after it was decoded is not repeated each second."""
    site = Site(tmp_path, monkeypatch, 1_000)
    waits = list[int]()

    class Counted(Backoff):
        def after(self, failures: int) -> int:
            waits.append(failures)
            super().after(failures)
            return 1

    def fail(*_: object) -> NoReturn:
        raise KafkaTimeout("cluster a does not answer")

    monkeypatch.setattr(topic_upkeep, "Backoff", Counted)
    for name in ("discover", "compare"):
        monkeypatch.setattr(f"mirror.spark.discovery.topic_watch.TopicWatch.{name}", fail)
    with site.upkeep():
        eventually(lambda: max(waits, default=0) >= 2, what="more failures in a row")
    assert site.warned == ["cluster a does not answer"]
    assert site.refreshed == 0


def test_an_error_that_comes_back_is_reported_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path, monkeypatch, 60_000)
    site.fails = True
    with site.upkeep():
        eventually(lambda: len(site.warned) == 1, what="the first outage")
        site.fails = False
        before = site.updates
        eventually(lambda: site.updates >= before + 2, what="calls that succeed")
        site.fails = True
        eventually(lambda: len(site.warned) == 2, what="the second outage")
    assert site.warned == ["cluster b does not answer"] * 2
