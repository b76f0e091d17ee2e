"""MirrorMaker 2's own classes translate the positions of groups by what `mirror run` and `mirror stream` write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from mirror.client import Admin, OffsetAndMetadata, TopicPartition
from tests.e2e.broker_side import Side
from tests.e2e.site import Site, flow
from tests.e2e.test_stream import Stream, numbered
from tests.mirrormaker.kafkas_classes import KafkasClasses, kafkas_classes
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkasClasses]:
    with kafkas_classes(tmp_path_factory.mktemp("java")) as running:
        yield running


def value_at(side: Side, topic: str, offset: int, wait_s: float = 60) -> bytes | None:
    """The first value that a consumer reads from ``offset`` on; None if there is none."""
    consumer = Consumer({"bootstrap.servers": side.address, "group.id": "any", "enable.auto.commit": False})
    try:
        consumer.assign([ConfluentPartition(topic, 0, offset)])
        message = consumer.poll(wait_s)
        return None if message is None else message.value()
    finally:
        consumer.close()


def commit(side: Side, group: str, topic: str, offset: int) -> None:
    with Admin({"bootstrap.servers": side.address}) as admin:
        admin.commit_group_offsets(group, {TopicPartition(topic, 0): OffsetAndMetadata(offset, None, f"at {offset}")})


# The suite has it without Spark: tests/spark/driver/test_group_checkpoints.py, and for Kafka's own classes
# tests/mirrormaker/test_kafkas_classes.py.
@pytest.mark.cluster
@pytest.mark.parametrize("naming", ["prefix", "identity"])
def test_a_run_translates_offsets_to_the_same_records(
    kafka: KafkasClasses, site: Site, source: Side, target: Side, unique: Callable[[str], str], naming: str
) -> None:
    """The group of the example that arrives at 102 with MirrorMaker 2; the target has other offsets than the source."""
    topic, group, name, cluster = unique("orders"), unique("billing"), unique("f"), unique("east")
    copied = topic if naming == "identity" else f"{cluster}.{topic}"
    source.create(topic)
    source.fill(topic, numbered(0, 250))
    target.create(copied)
    target.fill(copied, [b"there before"] * 33)
    lines = (
        f'naming = "{naming}"',
        "start-over = true",
        f'mirrormaker.checkpoints = true\ngroups = {{ include = ["{group}"], sync = false }}\n',
    )
    site.write({cluster: source.address, "b": target.address}, {name: flow(cluster, "b", [topic], *lines)})
    commit(source, group, topic, 137)
    run = site.run()
    assert (run.status, run.errors) == (0, [])
    there: dict[str, object] = {"servers": target.address, "source": cluster, "naming": naming}
    found: Any = kafka.ask(about="translation", group=group, pattern=".*", **there)
    translated, metadata = found["group"][f"{copied}-0"]
    assert value_at(target, copied, translated) == b"137"
    assert (metadata, found["pattern"]) == ("at 137", {group: found["group"]})
    names = kafka.ask(about="cluster", **there)
    assert f"{cluster}.checkpoints.internal" in names["checkpoints"]
    assert copied in names["remote"]


@pytest.mark.cluster
def test_a_stream_translates_offsets_as_groups_move(
    kafka: KafkasClasses, site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    """Forwards, to records that were only just copied, and back. They are old, so that they go in transactions."""
    topic, group, name, cluster = unique("orders"), unique("billing"), unique("f"), unique("east")
    copied = f"{cluster}.{topic}"
    source.create(topic)
    source.fill(topic, numbered(0, 250))
    lines = (
        "mirrormaker.checkpoints = true",
        f'groups = {{ include = ["{group}"], sync = false, interval-ms = 1000 }}\n',
    )
    site.write({cluster: source.address, "b": target.address}, {name: flow(cluster, "b", [topic], *lines)})

    def has_moved_to(offset: int) -> bool:
        """Also the metadata are the group's while its position is not copied yet."""
        if f"{cluster}.checkpoints.internal" not in target.topics():
            return False
        found: Any = kafka.ask(about="translation", servers=target.address, source=cluster, group=group, pattern="no")
        translated, metadata = found["group"].get(f"{copied}-0", (-1, ""))
        return metadata == f"at {offset}" and value_at(target, copied, translated, wait_s=2) == b"%d" % offset

    def moves_to(offset: int) -> None:
        commit(source, group, topic, offset)
        eventually(lambda: has_moved_to(offset), within_s=60, what=f"a checkpoint at {offset}", every_s=0.2)

    stream = Stream(site)
    stream.await_copy(target, copied, numbered(0, 250))
    for offset in (137, 249):
        moves_to(offset)
    source.fill(topic, numbered(250, 50))
    for offset in (280, 20):
        moves_to(offset)
    run = stream.end()
    assert (run.status, run.errors) == (0, [])
    assert site.flows()[name]["groups"]["problems"] == []
