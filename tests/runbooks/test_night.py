"""The runbook of a loss: paris is killed with records that were not copied, comes back, and its clients go home."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from mirror.sandbox.cluster import Cluster
from tests.alignment.permissions.guarded import acls
from tests.polling import eventually
from tests.runbooks.conftest import Cities
from tests.runbooks.page import NIGHT, SATURDAY, Reader, blocks, environment
from tests.switch.guarded_pair import PARTITIONS, TOPICS, Writer, as_user, read_some

pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]


def write(cluster: Cluster, name: str) -> list[str]:
    writer = Writer(as_user(cluster, "alice"), name)
    eventually(lambda: len(writer.acknowledged) > 100, what="records", within_s=60)
    return writer.stop()


def messages(cluster: Cluster, topic: str) -> Iterator[Message]:
    """All committed records of a topic."""
    options: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "compares"}
    consumer = Consumer({**options, "enable.partition.eof": True, "enable.auto.commit": False})
    left = PARTITIONS
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        while left:
            message = consumer.poll(20.0)
            assert message is not None
            if message.error() is None:
                yield message
            else:
                left -= 1
    finally:
        consumer.close()


def values(cluster: Cluster, *topics: str) -> Counter[str]:
    return Counter((message.value() or b"").decode() for topic in topics for message in messages(cluster, topic))


def test_a_lost_cluster_is_left_and_taken_back_by_the_commands_of_the_page(cities: Cities, tmp_path: Path) -> None:
    paris, berlin = cities.paris, cities.berlin
    saturday = Reader(SATURDAY, tmp_path, cities.names, environment())
    reader = Reader(NIGHT, tmp_path, cities.names, environment())
    reader.write("mirror.toml", "".join([*blocks(SATURDAY, "toml"), *blocks(NIGHT, "toml")]))
    original = acls(paris)
    before = write(paris, "before")
    read = read_some(as_user(paris, "bob"), 50)
    for beginning in ("mirror doctor", "mirror run", "mirror run"):
        saturday.type(beginning)
    lost = write(paris, "lost")
    (broker,) = paris.pids
    paris.kill(broker)
    for beginning in ("mirror failover night --assess", "mirror failover night"):
        reader.type(beginning)
    after = write(berlin, "after")
    read += read_some(as_user(berlin, "bob"), len(before) - len(read) + len(after))
    assert sorted(read) == sorted(before + after)
    paris.restart(broker)
    reader.type("mirror run --flow paris-berlin")
    assert values(berlin, *TOPICS) == Counter(before + after)
    for beginning in ("mirror failback night --inspect", *["mirror failback night"] * 3):
        reader.type(beginning)
    assert values(berlin, *(f"{topic}.tail.1" for topic in TOPICS)) == Counter(lost)
    reader.type("mirror run --flow berlin-paris")
    assert values(paris, *TOPICS) == Counter(before + lost + after)
    for beginning in ("mirror cutover home", "mirror failback night --lift"):
        reader.type(beginning)
    assert acls(paris) == original
    assert reader.is_done
    assert write(paris, "home")
