"""Topics appear while `mirror stream` follows: all good ones are copied, and each bad one is named, with its reason."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, TopicCollection

from tests.e2e.broker_side import WITHIN_S, Side
from tests.e2e.site import Site, flow
from tests.e2e.test_stream import Stream, numbered
from tests.polling import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

SEED = int(os.environ.get("MIRROR_E2E_SEED", "17"))
TOPICS = 20
RECORDS = 10
APPEAR_WITHIN_S = 24.0
"""In which all topics appear: one period and a half."""
COMPLETE_WITHIN_S = 60.0
FLOW = """refresh-ms = 5000
period-ms = 16000
[flows.f.producer]
"delivery.timeout.ms" = 10000
"request.timeout.ms" = 4000
"""
TOO_LONG = "the longest that brokers take has 249"
COLLIDES = "collides on cluster b with topic"


class Appearing:
    """A first topic, and those that are to come: most are good, two cannot be copied, and two are deleted later."""

    def __init__(self, start: str) -> None:
        self.chance = random.Random(SEED)
        self.start = start
        self.names = [f"{start}-{number}" for number in range(TOPICS)]
        self.long, self.collides = f"{start}-".ljust(249, "x"), f"{start}.collides"
        self.recreated, self.deleted = self.names[:2]
        self.names[2:4] = [self.long, self.collides]
        self.good = [start, *self.names[4:]]
        self.bad = {self.long: TOO_LONG, self.collides: COLLIDES}
        self.values = {name: numbered(100 * number, RECORDS) for number, name in enumerate([start, *self.names])}

    def create(self, source: Side) -> None:
        """Each at its moment."""
        began_s = time.monotonic()
        for moment_s, name in sorted((self.chance.uniform(0, APPEAR_WITHIN_S), name) for name in self.names):
            _pause_until(began_s + moment_s)
            source.create(name)
            source.fill(name, self.values[name])

    def delete(self, source: Side, target: Side) -> None:
        """One on each side, at some moment; that of the source is made again, with fewer records."""
        _pause_until(time.monotonic() + self.chance.uniform(0, APPEAR_WITHIN_S / 2))
        for side, name in ((source, self.recreated), (target, f"a.{self.deleted}")):
            side.delete(name)
        eventually(lambda: self.recreated not in source.topics(), what="the end of the source topic")
        source.create(self.recreated)
        source.fill(self.recreated, numbered(9000, RECORDS // 2))


def test_each_topic_that_appears_is_copied_or_named_with_its_reason(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    """Among them: a name that is too long on the target, one that collides there, one re-created, one deleted there."""
    topics = Appearing(unique("appearing"))
    target.create(f"a.{topics.start}_collides")
    source.create(topics.start)
    source.fill(topics.start, topics.values[topics.start])
    site.write({"a": source.address, "b": target.address}, {"f": flow("a", "b", [f"{topics.start}.*"], FLOW)})
    stream = Stream(site)
    stream.await_copy(target, f"a.{topics.start}", topics.values[topics.start])
    topics.create(source)
    for name in (topics.recreated, topics.deleted):
        stream.await_copy(target, f"a.{name}", topics.values[name], within_s=COMPLETE_WITHIN_S)
    before = _id(target, f"a.{topics.deleted}")
    topics.delete(source, target)
    for name in topics.good:
        stream.await_copy(target, f"a.{name}", topics.values[name], within_s=COMPLETE_WITHIN_S)

    def are_reported() -> bool:
        found = _outcomes(site)
        there = {topics.deleted, topics.recreated, *topics.bad, *topics.good} <= found.keys()
        return there and all(found[name][0] == "failed" for name in (topics.recreated, *topics.bad))

    new = lambda: _id(target, f"a.{topics.deleted}") not in {None, before}  # noqa: E731 - said where it is used
    eventually(new, within_s=COMPLETE_WITHIN_S, what="the new target topic")
    eventually(are_reported, within_s=COMPLETE_WITHIN_S, what="the word about all topics")
    (status,) = json.loads(site.ask("status", "--json"))["flows"]
    troubles = {each["topic"]: each["trouble"] or "" for each in status["partitions"]}
    plan = site.finish(site.launch(site.command("plan")))
    shown = site.ask("status")
    run = stream.end()

    found = _outcomes(site)
    assert {name: found[name] for name in topics.good} == dict.fromkeys(topics.good, ("complete", None))
    assert "recreated: " in str(found[topics.recreated][1])
    assert "recreated: " in troubles[topics.recreated]
    outcome, error = found[topics.deleted]
    assert error or (outcome, target.read(f"a.{topics.deleted}")) == ("complete", topics.values[topics.deleted])
    page = (site.report / "report.html").read_text(encoding="utf-8")
    for name, reason in topics.bad.items():
        for text in (str(found[name][1]), troubles[name], _joined(shown), _joined(plan.out), page):
            assert reason in text
        assert name in page
        assert [line for line in run.err.splitlines() if name in line and reason in line], run.err
    assert (plan.status, run.status) == (3, 3)
    assert {troubles[name] for name in topics.good} == {""}


def _pause_until(moment_s: float) -> None:
    time.sleep(max(0.0, moment_s - time.monotonic()))


def _joined(text: str) -> str:
    return " ".join(text.split())


def _outcomes(site: Site) -> dict[str, tuple[str, str | None]]:
    return {topic: (each["outcome"], each["error"]) for (topic, _), each in site.partitions("f").items()}


def _id(side: Side, topic: str) -> str | None:
    """The topic's id; None where it is not there."""
    try:
        return str(side.admin.describe_topics(TopicCollection([topic]))[topic].result(WITHIN_S).topic_id)
    except KafkaException:
        return None


def test_new_partitions_are_copied_in_the_period_that_runs(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    """They are counted in the results of its period, which lasts for weeks; the next run goes on with them."""
    topic = unique("soon")
    source.create(topic)
    source.fill(topic, numbered(0, RECORDS))
    site.write(
        {"a": source.address, "b": target.address}, {"f": flow("a", "b", [f"{topic}.*"], "period-ms = 2000000000")}
    )
    stream = Stream(site)
    stream.await_copy(target, f"a.{topic}", numbered(0, RECORDS))
    source.grow(topic, 2)
    source.fill(topic, numbered(100, RECORDS), 1)
    source.create(f"{topic}-2")
    source.fill(f"{topic}-2", numbered(200, RECORDS))
    stream.await_copy(target, f"a.{topic}", numbered(100, RECORDS), 1, within_s=COMPLETE_WITHIN_S)
    stream.await_copy(target, f"a.{topic}-2", numbered(200, RECORDS), within_s=COMPLETE_WITHIN_S)
    assert [*site.report.glob("ledger/f/*/results-*")] == [], "the first period runs"
    run = stream.end()
    assert (run.status, run.errors) == (0, [])
    assert f"new on the source, and copied from now on: {topic}" in run.err
    found = {key: (each["outcome"], each["records"]) for key, each in site.partitions("f").items()}
    assert found == dict.fromkeys([(topic, 0), (topic, 1), (f"{topic}-2", 0)], ("complete", RECORDS))
    source.fill(f"{topic}-2", numbered(300, RECORDS))
    stream = Stream(site)
    stream.await_copy(target, f"a.{topic}-2", [*numbered(200, RECORDS), *numbered(300, RECORDS)])
    assert stream.end().status == 0
