"""A consumer is stopped on the source and started on the target, with the same group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.e2e.broker_side import Side
from tests.e2e.site import Site, flow
from tests.e2e.test_stream import Stream
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]


def consumed(side: Side, group: str, topic: str, count: int, committed: int | None = None) -> list[bytes]:
    """Values that a member of ``group`` reads; it commits behind the first ``committed`` of them, or all."""
    options = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": side.address, **options})
    found: list[Any] = []
    try:
        consumer.subscribe([topic])

        def enough() -> bool:
            messages: list[Any] = consumer.consume(count - len(found), timeout=0.5)
            for message in messages:
                assert message.error() is None, message.error()
                found.append(message)
            return len(found) >= count

        eventually(enough, what=f"{count} records of {topic}")
        last = found[(count if committed is None else committed) - 1]
        consumer.commit(message=last, asynchronous=False)
        return [message.value() for message in found]
    finally:
        consumer.close()


def consumed_from(side: Side, group: str, topic: str) -> int:
    """The committed offset."""
    consumer = Consumer({"bootstrap.servers": side.address, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
        return int(found.offset)
    finally:
        consumer.close()


def next_of(side: Side, group: str, topic: str) -> bytes | None:
    """The record at the committed offset; None if there is no such offset."""
    offset = consumed_from(side, group, topic)
    if offset < 0:
        return None
    consumer = Consumer({"bootstrap.servers": side.address, "group.id": f"{group}.reader"})
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        message: Any = consumer.poll(20)
        assert message is not None, f"no record at {offset}"
        assert message.error() is None, message.error()
        value: bytes = message.value()
        return value
    finally:
        consumer.close()


@pytest.mark.cluster
def test_a_consumer_continues_on_the_target_after_a_run(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    topic, group, name = unique("orders"), unique("billing"), unique("f")
    source.create(topic)
    values = [b"%d" % number for number in range(250)]
    source.fill(topic, values)
    assert consumed(source, group, topic, 200, committed=137) == values[:200]
    groups = f'[flows.{name}.groups]\ninclude = ["{group}"]\n'
    site.write({"a": source.address, "b": target.address}, {name: flow("a", "b", [topic], groups)})
    run = site.run()
    assert (run.status, run.errors) == (0, [])
    found = site.flows()[name]["groups"]
    assert found.pop("time_ms") > 0
    assert found == {
        "sync": True,
        "total": 1,
        "in_step": 1,
        "not_in_step": {},
        "longest_seconds": 0.0,
        "committed": 1,
        "passed": 0,
        "read_again": 0,
        "problems": [],
        "worst": [],
    }
    assert consumed(target, group, f"a.{topic}", 113) == values[137:]
    # The group has moved: a later run leaves it alone.
    moved = consumed_from(target, group, f"a.{topic}")
    again = site.run()
    assert again.status == 0
    assert f"  {group}: taken-over ({topic}-0)" in again.out.splitlines()
    assert site.flows()[name]["groups"]["not_in_step"] == {"taken-over": 1}
    assert consumed_from(target, group, f"a.{topic}") == moved


@pytest.mark.cluster
def test_a_consumer_continues_on_the_target_of_a_stream(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    topic, group, name = unique("orders"), unique("billing"), unique("f")
    source.create(topic)
    values = [b"%d" % number for number in range(400)]
    source.fill(topic, values[:200])
    groups = f'[flows.{name}.groups]\ninclude = ["{group}"]\ninterval-ms = 2000\n'
    site.write({"a": source.address, "b": target.address}, {name: flow("a", "b", [topic], groups)})
    stream = Stream(site)
    stream.await_copy(target, f"a.{topic}", values[:200])
    assert consumed(source, group, topic, 150, committed=100) == values[:150]
    eventually(lambda: next_of(target, group, f"a.{topic}") == values[100], what="the position of the new group")
    source.fill(topic, values[200:])
    assert consumed(source, group, topic, 200, committed=150) == values[100:300]
    stream.await_copy(target, f"a.{topic}", values)
    run = stream.end()
    assert (run.status, run.errors) == (0, [])
    assert consumed(target, group, f"a.{topic}", 150) == values[250:]
    assert site.flows()[name]["groups"]["in_step"] == 1
