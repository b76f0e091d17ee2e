"""Records whose headers have names that are not UTF-8, as producers that are not written in Java may send them."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING
from confluent_kafka import Consumer as Confluent
from confluent_kafka import TopicPartition as ConfluentPartition

from mirror.relay.batches.reencode import ReencodeReason
from mirror.wire.records import Batch
from tests.copying.pair import TwoClusters
from tests.copying.writers import write_batches
from tests.e2e.broker_side import FIRST_MS, WITHIN_S
from tests.fakes.record_batches import batch, build, read_varint, varint

pytestmark = pytest.mark.brokers

NAMES = (b"plain", "é".encode(), b"\xff\xfe", "é".encode("latin-1"))
VALUES = [b"%d" % number for number in range(40)]


def test_names_that_are_not_utf8_are_copied_as_they_are(pair: TwoClusters) -> None:
    """From LogAppendTime to CreateTime each batch is decoded and encoded again."""
    topic = pair.topics(source={"message_timestamp_type": "LogAppendTime"})
    write_batches(pair.source.address, topic, [batch_with_headers(VALUES[:25]), batch_with_headers(VALUES[25:])])
    (result,) = pair.complete(topic)
    assert result.records == len(VALUES)
    assert sum(result.deep.values()) == result.deep[ReencodeReason.APPEND_TIME] == 2
    source, target = (
        [name for one in side.batches(topic) for name in names_of(one)] for side in (pair.source, pair.target)
    )
    assert target == source == list(NAMES) * len(VALUES)
    assert values_read_by_librdkafka(pair.target.address, topic) == VALUES


def batch_with_headers(values: list[bytes]) -> Batch:
    """A batch made by hand, each record with all names."""
    payload = b""
    for number, value in enumerate(values):
        body = b"\0" + varint(0) + varint(number) + varint(-1) + varint(len(value)) + value + varint(len(NAMES))
        body += b"".join(varint(len(name)) + name + varint(1) + b"h" for name in NAMES)
        payload += varint(len(body)) + body
    return batch(build(values, payload=payload, timestamp=FIRST_MS))


def names_of(one: Batch) -> list[bytes]:
    """The names of all headers of an uncompressed batch, read by hand."""
    view, at, names = bytes(one.view), 61, []
    while at < len(view):
        _, at = read_varint(view, at)
        at += 1
        for _ in range(2):
            _, at = read_varint(view, at)
        for _ in range(2):
            length, at = read_varint(view, at)
            at += max(0, length)
        headers, at = read_varint(view, at)
        for _ in range(headers):
            length, at = read_varint(view, at)
            names.append(view[at : at + length])
            length, at = read_varint(view, at + length)
            at += max(0, length)
    return names


def values_read_by_librdkafka(servers: str, topic: str) -> list[bytes | None]:
    """Its binding for Python cannot return these headers."""
    consumer = Confluent({"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False})
    try:
        consumer.assign([ConfluentPartition(topic, 0, OFFSET_BEGINNING)])
        messages = consumer.consume(len(VALUES), timeout=WITHIN_S)
        assert [message.error() for message in messages] == [None] * len(messages)
        return [message.value() for message in messages]
    finally:
        consumer.close()
