"""Test copies between real brokers: confluent-kafka sees the same sample of each topic, and nothing that is masked."""

from __future__ import annotations

import json
import re
import time
from typing import Any, Final

import pytest

from mirror.relay.batches.reencode import DROPPED_BY_TRANSFORM, ReencodeReason
from mirror.relay.masking.record_masks import Masking
from mirror.relay.model.ranges import Outcome
from tests.copying.pair import TwoClusters
from tests.copying.writers import Made, batch_of, made, write_batches

pytestmark = pytest.mark.brokers

MASKS: Final = (
    ("key", "hash"),
    ("value:$.customer", "hash"),
    ("value:$.mails[*].to", "hash"),
    ("value:$.card", "null"),
    ("header:user", "drop"),
)
CUSTOMERS: Final = 300


def masking(**changes: Any) -> Masking:
    return Masking(**{"masks": MASKS, "secret": b"a secret of a test", **changes})


def record(number: int, value: str | None) -> Made:
    (one,) = made(1, first=number)
    headers = (("user", b"person-%d" % number), ("trace", b"t"))
    now = round(time.time() * 1000) + number  # older ones would not go by sequence
    return one._replace(
        time_ms=now, key=b"person-%d" % number, value=None if value is None else value.encode(), headers=headers
    )


def order(number: int) -> str:
    return (
        f'{{"customer": "person-{number}","total":{number}.50, "card" : "4111-{number}", "big":1234567890123456789012,'
        f'"mails":[{{"to":"person-{number}","n":1e2}},{{"to":null}}]}}'
    )


def numbers(value: bytes) -> list[str]:
    """The numbers of a value as they are written."""
    return re.findall(r'"(?:total|big|n)":([0-9.e]+)', value.decode())


@pytest.mark.parametrize("way", ["transactions", pytest.param("sequences", marks=pytest.mark.cluster)])
def test_topics_have_the_same_customers_under_the_same_pseudonyms(pair: TwoClusters, way: str) -> None:
    orders, people = (
        pair.topics(2),
        pair.topics(both={"cleanup_policy": "compact"}) if way == "transactions" else pair.topics(),
    )
    for partition in (0, 1):
        half = [record(number, order(number)) for number in range(partition, CUSTOMERS, 2)]
        write_batches(pair.source.address, orders, [batch_of(half, "lz4"), batch_of(half, "gzip")], partition)
    deleted = [record(number, None) for number in range(CUSTOMERS)]
    write_batches(
        pair.source.address, people, [batch_of([record(n, "{}") for n in range(CUSTOMERS)]), batch_of(deleted)]
    )

    policy = {"masking": masking(sample="20%"), "exactly_once_by": way}
    results = [*pair.complete(orders, **policy), *pair.complete(people, **policy)]
    copied, read = sum(one.records for one in results), 4 * CUSTOMERS
    assert {*results[0].deep} == {ReencodeReason.CONFIGURED}
    assert sum(one.skipped[DROPPED_BY_TRANSFORM] for one in results) == read - copied
    assert copied == pytest.approx(read * 0.2, rel=0.3)

    keys = set()
    for partition, (source, target) in enumerate(pair.both(orders, 2)):
        names = {numbers(one.value)[0]: one.key for one in source if one.value is not None}
        assert target
        for one in target:
            assert one.value is not None
            assert one.key is not None
            value = json.loads(one.value)
            assert one.key.decode() == value["customer"] == value["mails"][0]["to"]
            assert (value["card"], value["mails"][1]["to"], one.headers) == (None, None, (("trace", b"t"),))
            total, big, exponent = numbers(one.value)
            assert (total in names, big, exponent) == (True, "1234567890123456789012", "1e2")
            assert b'"card" : null' in one.value  # the spaces are those of the source
            assert int(total.removesuffix(".50")) % 2 == partition
            keys.add(one.key)
    found = pair.target.records(people)
    assert {one.key for one in found} == keys
    assert sorted(one.value is None for one in found) == [False] * len(keys) + [True] * len(keys)
    for one in (*found, *(one for _, target in pair.both(orders, 2) for one in target)):
        assert b"person" not in (one.key or b"") + (one.value or b"")
        assert b"4111" not in (one.value or b"")


def test_a_record_that_cannot_be_masked_stops_its_partition_or_is_left_out(pair: TwoClusters) -> None:
    topic = pair.topics(2)
    for partition in (0, 1):
        good, bad = record(1, order(1)), record(2, '{"customer":"person-2"' if partition else order(2))
        batches = [batch_of([good]), batch_of([good, bad, good])]
        write_batches(pair.source.address, topic, batches, partition)
    healthy, failed = pair.copy(topic, masking=masking())
    assert (healthy.outcome, healthy.records) == (Outcome.COMPLETE, 4)
    assert failed.outcome is Outcome.FAILED
    assert failed.error is not None
    assert "the value of the record at offset 2 cannot be masked: it is not JSON" in failed.error
    assert "person" not in failed.error
    assert [one.value is not None and b"person" in one.value for one in pair.target.records(topic, 1)] in ([], [False])

    _, mended = pair.complete(topic, masking=masking(leaves_out=True))
    assert mended.skipped == {ReencodeReason.UNMASKABLE: 1}
    assert len(pair.target.records(topic, 1)) == 3
