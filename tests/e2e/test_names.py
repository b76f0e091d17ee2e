"""Topics and groups that have other names on the target, and copies within one cluster; confluent-kafka checks them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from mirror.mirrormaker.records import CheckpointKey
from mirror.sandbox.fetch import KAFKA_VERSION
from tests.conftest import NewCluster
from tests.e2e.broker_side import Side
from tests.e2e.site import Site, flow
from tests.e2e.test_groups import consumed, consumed_from, next_of
from tests.releases.releases import OLDEST

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

VALUES = [b"%d" % number for number in range(250)]


def _translated(site: Site, topic: str, offset: int, *arguments: str) -> int:
    """What `mirror offsets` says."""
    (found,) = json.loads(site.ask("offsets", topic, "0", str(offset), "--json", *arguments))["offsets"]
    at: int = found["target" if not arguments else "source"]
    return at


def test_renamed_topics_and_groups_on_another_cluster(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    orders, clicks, group, name = unique("orders"), unique("clicks-"), unique("billing"), unique("f")
    web = f"web.{clicks.removeprefix('clicks-')}"
    source.create(orders, 2, retention_ms=123_456_789_000)
    source.create(clicks)
    target.create(web)  # other offsets than on the source
    target.fill(web, [b"there before"] * 33)
    for topic, partition in ((orders, 0), (orders, 1), (clicks, 0)):
        source.fill(topic, VALUES, partition)
    assert consumed(source, group, clicks, 200, committed=137) == VALUES[:200]
    lines = (
        f'names = {{ "{orders}" = "eu.{orders}", "clicks-(.*)" = "web.$1" }}',
        "start-over = true",
        f'[flows.{name}.groups]\ninclude = ["{group}"]\nnames = {{ "(.*)" = "eu.$1" }}',
        f"[flows.{name}.mirrormaker]\ncheckpoints = true",
    )
    site.write({"a": source.address, "b": target.address}, {name: flow("a", "b", [orders, clicks], *lines)})
    planned = site.finish(site.launch(site.command("plan")))
    assert f"-> eu.{orders}" in "".join(planned.out.split("\n")), planned.out

    run = site.run()
    assert (run.status, run.errors) == (0, [])
    copies = {f"eu.{orders}", web}
    assert {one for one in target.topics() if orders in one or web in one} == copies
    assert [target.read(f"eu.{orders}", partition) for partition in (0, 1)] == [VALUES, VALUES]
    assert target.config(f"eu.{orders}")["retention.ms"] == "123456789000"
    assert target.read(web) == [b"there before"] * 33 + VALUES

    # The group continues under its new name, and has no position under the old one.
    assert next_of(target, f"eu.{group}", web) == VALUES[137]
    assert consumed_from(target, group, web) < 0
    assert _translated(site, clicks, 137) == consumed_from(target, f"eu.{group}", web)
    assert _translated(site, clicks, consumed_from(target, f"eu.{group}", web), "--reverse") == 137
    (shown,) = json.loads(site.ask("groups", "--json"))["groups"]
    assert (shown["group"], shown["target_group"]) == (group, f"eu.{group}")
    assert (shown["positions"][0]["topic"], shown["positions"][0]["target_topic"]) == (clicks, web)
    assert _checkpoints(target, "a.checkpoints.internal") == {(group, web)}

    (status,) = json.loads(site.ask("status", "--json"))["flows"]
    assert {one["target_topic"] for one in status["partitions"]} == copies
    verified = site.run("--strict", "--json", command="verify")
    assert {one["target_topic"] for one in _partitions(verified.out)} == copies

    # A consumer that has moved is brought back by hand, to the group with the old name.
    assert consumed(target, f"eu.{group}", web, 50) == VALUES[137:187]
    site.ask("groups", "--reverse", "--commit")
    assert next_of(source, group, clicks) == VALUES[187]


def test_copies_within_one_cluster(site: Site, source: Side, unique: Callable[[str], str]) -> None:
    topic, group, name = unique("orders"), unique("billing"), unique("f")
    source.create(topic, 2)
    for partition in (0, 1):
        source.fill(topic, VALUES, partition)
    assert consumed(source, group, topic, 200, committed=137)
    lines = (
        f'topics-exclude = ["copy[.].*"]\nnames = {{ "(.*{topic})" = "copy.$1" }}\non-topic-deleted = "delete"',
        f'[flows.{name}.groups]\ninclude = [".*{group}"]\nnames = {{ "{group}" = "copy.{group}" }}',
    )
    site.write({"a": source.address}, {name: flow("a", "a", [f".*{topic}"], *lines)})
    for _ in range(2):
        run = site.run()
        assert (run.status, run.errors) == (0, [])
        assert {one for one in source.topics() if topic in one} == {topic, f"copy.{topic}"}, "nothing comes back"
        assert [source.read(f"copy.{topic}", partition) for partition in (0, 1)] == [VALUES, VALUES]
    proved = site.run("--strict", command="verify")
    assert (proved.status, proved.errors) == (0, [])
    for partition in (0, 1):
        old = _committed(source, group, topic, partition)
        new = _committed(source, f"copy.{group}", f"copy.{topic}", partition)
        assert (old < 0) is (new < 0)
        if old >= 0:
            assert _value(source, f"copy.{topic}", partition, new) == _value(source, topic, partition, old)


@pytest.mark.parametrize("release", [KAFKA_VERSION, OLDEST])
def test_the_name_of_a_copy_that_another_topic_gets(
    site: Site, target: Side, new_cluster: NewCluster, unique: Callable[[str], str], release: str
) -> None:
    """Brokers of the oldest release have no topic ids, which would tell offsets of the two from each other."""
    source = Side(new_cluster(release=release).bootstrap_servers)
    a, b, x, y, name, group = (unique(one) for one in ("a", "b", "x", "y", "f", "billing"))
    for topic, values in ((a, VALUES[:50]), (b, VALUES)):
        source.create(topic)
        source.fill(topic, values)

    def write(*lines: str) -> None:
        sides = {"a": source.address, "b": target.address}
        more = (f'[flows.{name}.groups]\ninclude = ["{group}"]', f"[flows.{name}.acls]\nsync = false")
        site.write(sides, {name: flow("a", "b", [a, b], *lines, 'on-topic-deleted = "delete"', *more)})

    write(f'names = {{ "{a}" = "{x}" }}', f'topics-exclude = ["{b}"]')
    assert site.run().status == 0
    assert consumed(source, group, b, 200, committed=137) == VALUES[:200]
    write(f'names = {{ "{b}" = "{x}", "{a}" = "{y}" }}')
    run = site.run()
    assert run.status != 0
    assert f"target topic {x} is the copy of source topic {a}" in " ".join(run.err.split())
    assert (target.read(x), target.read(y)) == (VALUES[:50], VALUES[:50])
    assert consumed_from(target, group, x) < 0
    proved = site.run("--strict", command="verify")
    assert proved.status != 0
    write(f'names = {{ "{b}" = "{x}", "{a}" = "{y}" }}', "start-over = true")
    assert site.run().status == 0
    assert target.read(x) == VALUES[:50] + VALUES
    assert next_of(target, group, x) == VALUES[137]


def _committed(side: Side, group: str, topic: str, partition: int) -> int:
    (found,) = Consumer({"bootstrap.servers": side.address, "group.id": group}).committed(
        [TopicPartition(topic, partition)], timeout=30
    )
    return int(found.offset)


def _value(side: Side, topic: str, partition: int, offset: int) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": side.address, "group.id": "any", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        message = consumer.poll(20)
        assert message is not None
        value: bytes | None = message.value()
        return value
    finally:
        consumer.close()


def _checkpoints(side: Side, topic: str) -> set[tuple[str, str]]:
    """The groups and topics that MirrorMaker 2's tools find there."""
    consumer = Consumer({"bootstrap.servers": side.address, "group.id": "any", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        keys = [CheckpointKey.parse(message.key()) for message in consumer.consume(side.end(topic), timeout=20)]
        return {(key.group, key.tp.topic) for key in keys if key is not None}
    finally:
        consumer.close()


def _partitions(out: str) -> list[dict[str, Any]]:
    (found,) = json.loads(out)["flows"]
    partitions: list[dict[str, Any]] = found["partitions"]
    return partitions
