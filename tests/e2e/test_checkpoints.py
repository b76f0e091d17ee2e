"""MirrorMaker 2's own classes translate the positions of groups by what `mirror run` writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from mirror.client import Admin, OffsetAndMetadata, TopicPartition
from tests.e2e.broker_side import Side
from tests.e2e.site import Site, flow
from tests.mirrormaker.kafkas_classes import kafkas_classes

pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]


def value_at(side: Side, topic: str, offset: int) -> bytes | None:
    """The first value that a consumer reads from ``offset`` on."""
    consumer = Consumer({"bootstrap.servers": side.address, "group.id": "any", "enable.auto.commit": False})
    try:
        consumer.assign([ConfluentPartition(topic, 0, offset)])
        message = consumer.poll(60)
        assert message is not None
        return message.value()
    finally:
        consumer.close()


def test_offsets_are_translated_to_the_same_records(
    site: Site, source: Side, target: Side, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """The group of the example that arrives at 102 with MirrorMaker 2; the target has other offsets than the source."""
    topic, group, name, cluster = unique("orders"), unique("billing"), unique("f"), unique("east")
    copied = f"{cluster}.{topic}"
    source.create(topic)
    source.fill(topic, [b"%d" % number for number in range(250)])
    target.create(copied)
    target.fill(copied, [b"there before"] * 33)
    lines = "start-over = true", f'mirrormaker.checkpoints = true\ngroups = {{ include = ["{group}"], sync = false }}\n'
    site.write({cluster: source.address, "b": target.address}, {name: flow(cluster, "b", [topic], *lines)})
    java = tmp_path / "java"
    java.mkdir()
    tp = TopicPartition(topic, 0)
    with Admin({"bootstrap.servers": source.address}) as admin, kafkas_classes(java) as kafka:
        for offset in (137, 20):
            admin.commit_group_offsets(group, {tp: OffsetAndMetadata(offset, None, f"at {offset}")})
            run = site.run()
            assert (run.status, run.errors) == (0, [])
            found: Any = kafka.ask(
                about="translation", servers=target.address, source=cluster, group=group, pattern=".*"
            )
            translated, metadata = found["group"][f"{copied}-0"]
            assert value_at(target, copied, translated) == b"%d" % offset
            assert (metadata, found["pattern"]) == (f"at {offset}", {group: found["group"]})
        names = kafka.ask(about="cluster", servers=target.address, source=cluster)
    assert f"{cluster}.checkpoints.internal" in names["checkpoints"]
    assert copied in names["remote"]
