"""Spark jobs from brokers of older releases: `mirror run` and `mirror stream` as a user runs them, beside a 4.3 target.

confluent-kafka, which shares no code with the copy, fills the sources and reads both sides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import psutil
import pytest
from confluent_kafka import KafkaError, KafkaException

from mirror.sandbox import copy_verifier
from tests.conftest import NewCluster
from tests.copying.pair import End
from tests.e2e.broker_side import WITHIN_S, Side
from tests.e2e.conftest import site, target
from tests.e2e.feed import Feed
from tests.e2e.site import Site, flow
from tests.e2e.test_stream import SHORT, Stream, numbered
from tests.polling import eventually
from tests.releases.releases import OLDEST, OTHERS
from tests.releases.topics import SOURCE_PROPERTIES, SourceTopics

__all__ = ["site", "target"]
pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

_STREAM_WITHIN_S = 240.0


@pytest.mark.parametrize("version", OTHERS)
def test_a_run_copies_all_kinds_of_topics_and_the_next_one_only_what_is_new(
    site: Site, target: Side, new_cluster: NewCluster, unique: Callable[[str], str], version: str
) -> None:
    topics = SourceTopics(new_cluster(release=version, properties=SOURCE_PROPERTIES), version, unique("x"))
    topics.create()
    topics.grow()
    topics.compact()
    site.write({"a": topics.side.address, "b": target.address}, {"f": flow("a", "b", sorted(topics.partitions))})
    first = site.run()
    assert (first.status, first.errors) == (0, [])
    assert topics.difference(target) is None
    copied = {tp: one["end"] for tp, one in site.partitions("f").items()}
    assert site.partitions("f")[topics.transactional, 0]["skipped"]["aborted"] > 0

    topics.grow()
    new = {
        (topic, partition): sum(offset >= copied[topic, partition] for offset, _ in log)
        for topic, count in topics.partitions.items()
        for partition, log in enumerate(topics.side.logs(topic, count))
    }
    assert {topic for (topic, _), count in new.items() if not count} == {topics.compacted}, "nothing was written there"
    second = site.run()
    assert (second.status, second.errors) == (0, [])
    results = site.partitions("f")
    assert {tp: one["start"] for tp, one in results.items()} == copied
    assert {tp: one["records"] for tp, one in results.items()} == new
    assert topics.difference(target) is None


@pytest.mark.parametrize("version", [OLDEST, "2.8.2"])
def test_a_stream_whose_worker_is_killed_copies_all_once_and_in_order(
    site: Site, target: Side, new_cluster: NewCluster, unique: Callable[[str], str], version: str
) -> None:
    topics = SourceTopics(new_cluster(release=version), version, unique("x"))
    topics.create()
    topics.grow()
    fed = unique("fed")
    topics.side.create(fed, 2)
    # Nothing is written to the compacted one: it becomes compacted on both sides at different moments.
    names = [topic for topic in topics.partitions if topic != topics.compacted]
    site.write({"a": topics.side.address, "b": target.address}, {"f": flow("a", "b", [fed, *names], SHORT)})
    stream = Stream(site)

    def await_copy(ends: list[int]) -> None:
        def reached() -> bool:
            assert stream.child.poll() is None, stream.child.communicate()
            return all(target.end(f"a.{fed}", partition) >= end for partition, end in enumerate(ends))

        eventually(reached, within_s=_STREAM_WITHIN_S, what=f"copies up to {ends}", every_s=0.3)

    with Feed(topics.side, fed, 2, 200) as feed:
        await_copy([100, 100])
        _kill_worker(site)
        topics.grow()
        await_copy(feed.ends())
        await_copy(feed.end())
    eventually(
        lambda: topics.difference(target, topics=names) is None,
        within_s=_STREAM_WITHIN_S,
        what="the other topics",
        every_s=1,
    )
    run = stream.end()
    assert (run.status, run.errors) == (0, []), run.err
    assert {one["outcome"] for one in site.partitions("f").values()} == {"complete"}
    assert topics.difference(target, topics=names) is None
    verdict = copy_verifier.compare(topics.side.address, fed, target.address, f"a.{fed}")
    assert (verdict.difference, verdict.records) == (None, sum(feed.ends()))


def _kill_worker(site: Site) -> None:
    """SIGKILL a process that Spark's daemon has forked for a task; again if that one had no task at the moment."""

    def lost() -> bool:
        if "Lost task" in (site.report / "spark.log").read_text(encoding="utf-8"):
            return True
        for worker in site.workers():
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
            break
        return False

    eventually(lost, within_s=_STREAM_WITHIN_S, what="a task whose worker was killed", every_s=3)


def test_a_topic_without_an_id_is_named_in_plans_and_when_it_was_made_again(
    site: Site, target: Side, new_cluster: NewCluster, unique: Callable[[str], str]
) -> None:
    cluster = new_cluster(2, release=OLDEST)
    source = End(cluster.bootstrap_servers)
    shorter, longer = (unique(name) for name in ("shorter", "longer"))
    for topic in (shorter, longer):
        source.create_at(topic, [2])
        source.fill(topic, numbered(0, 50))
    # With ZooKeeper a leader has a new epoch once the controller has seen it go; a topic made again begins at 0.
    cluster.restart(2)
    eventually(
        lambda: source.end(shorter) == source.end(longer) == 50, within_s=WITHIN_S, what="the partitions' leader"
    )
    for topic in (shorter, longer):
        source.fill(topic, numbered(50, 50))
    site.write({"a": source.address, "b": target.address}, {"f": flow("a", "b", [shorter, longer])})
    plan = site.finish(site.launch(site.command("plan")))
    run = site.run()
    for said, status in ((plan, 3), (run, 0)):
        assert said.status == status, said.err
        assert f"2 topics, such as {longer}, of a have no ids" in _joined(said.out + said.err)

    for topic, count in ((shorter, 10), (longer, 300)):
        _make_again(source, topic)
        source.fill(topic, numbered(9000, count))
    again = site.run()
    assert again.status == 3, again.err
    found = {topic: (one["outcome"], one["error"]) for (topic, _), one in site.partitions("f").items()}
    for topic, parts in (
        (shorter, ("truncated: ", "or the topic was deleted and made again, which it has no id to show")),
        (longer, ("recreated: ", "it has no id to show it")),
    ):
        outcome, error = found[topic]
        assert outcome == "failed"
        assert [part for part in parts if part not in error] == [], error
        assert target.read(f"a.{topic}") == numbered(0, 100)


def _make_again(side: Side, topic: str) -> None:
    side.delete(topic)

    def made() -> bool:
        try:
            side.create(topic)
        except KafkaException as error:
            # A controller with ZooKeeper deletes a topic after it has answered.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    eventually(made, within_s=WITHIN_S, what=f"{topic} made again", every_s=0.2)


def test_a_target_that_is_too_old_is_refused_in_one_line(
    site: Site, target: Side, new_cluster: NewCluster, unique: Callable[[str], str]
) -> None:
    """The newer cluster is the source here."""
    old, topic = Side(new_cluster(release="2.8.2").bootstrap_servers), unique("wanted")
    target.create(topic)
    target.fill(topic, numbered(0, 10))
    site.write({"new": target.address, "old": old.address}, {"f": flow("new", "old", [topic])})
    before = old.topics()
    for run in (site.run(), site.finish(site.launch(site.command("plan")))):
        (line,) = run.errors
        assert run.status == 1
        assert line == (
            "mirror: flow f: old cannot be a target, which needs Apache Kafka 3.0 or newer: broker 1 at"
            f" {old.address}: it speaks FindCoordinator up to version 3, and 4 is needed"
        )
    # Its brokers make this one as soon as anybody asks where a group is.
    assert old.topics() - {"__consumer_offsets"} == before


def _joined(text: str) -> str:
    return " ".join(text.split())
