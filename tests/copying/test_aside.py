"""Records that the target does not take go to the flow's aside topic, once, with where they come from and why.

confluent-kafka reads both topics.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.sandbox.cluster import Cluster
from mirror.wire.api import Api
from mirror.wire.records import Batch
from tests.copying.pair import MAX_BYTES, Seen, TwoClusters
from tests.copying.site import name
from tests.copying.test_corrupt import AT, BATCHES, DAMAGED, MALFORMED, PARTITIONS, RECORDS, SICK, Damaging
from tests.copying.writers import Made, batch_of, made, write_batches
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.brokers

HOUR_MS: Final = 3_600_000
WAYS: Final = pytest.mark.parametrize("by", ["auto", pytest.param("transactions", marks=pytest.mark.cluster)])
"""With "auto", young records go by sequence until one goes aside."""


def policy_of(by: str, **policies: object) -> dict[str, Any]:
    return {"exactly_once": bool(by), "exactly_once_by": by or "auto", **policies}


def aside_topic(pair: TwoClusters) -> str:
    topic = name("aside")
    pair.target.create(topic, retention_ms=-1, max_message_bytes=MAX_BYTES)
    return topic


def young(count: int, *, first: int = 0) -> list[Made]:
    now_ms = int(time.time() * 1000)
    return [record._replace(time_ms=now_ms) for record in made(count, first=first)]


def origin_of(record: Seen) -> dict[str, str]:
    """Return the headers that a record got when it went aside, without their prefix."""
    found = {key: (value or b"").decode() for key, value in record.headers if key.startswith("mirror.aside.")}
    return {key.removeprefix("mirror.aside."): value for key, value in found.items()}


def own(record: Seen, source: Seen) -> Seen:
    """Return a record of the aside topic as it was, with the time that its headers have."""
    headers = tuple(pair for pair in record.headers if not pair[0].startswith("mirror.aside."))
    return Seen(record.key, record.value, headers, source.kind, int(origin_of(record)["timestamp"]))


def expect_aside(pair: TwoClusters, topic: str, aside: str, reason: str, offsets: Sequence[int]) -> None:
    """The records at these source offsets are aside, once and unchanged, and all others are on the target."""
    source = pair.source.seen(topic)
    found = pair.target.records(aside)
    assert [int(origin_of(one)["offset"]) for one in found] == list(offsets)
    by_offset = dict(source)
    assert [own(one, by_offset[offset]) for one, offset in zip(found, offsets, strict=True)] == [
        by_offset[offset] for offset in offsets
    ]
    for one, offset in zip(found, offsets, strict=True):
        origin = origin_of(one)
        assert abs(one.time_ms - time.time() * 1000) < HOUR_MS, "its timestamp is when it went aside"
        assert {**origin, "timestamp": ""} == {
            "reason": reason,
            "flow": pair.flow,
            "cluster": pair.cluster_id,
            "topic": topic,
            "partition": "0",
            "offset": f"{offset}",
            "end": f"{offset + 1}",
            "timestamp": "",
            "target": topic,
        }
    assert pair.target.records(topic) == [seen for offset, seen in source if offset not in offsets]


@WAYS
def test_record_above_the_target_s_limit_goes_aside(pair: TwoClusters, by: str) -> None:
    topic = pair.topics(source={"max_message_bytes": MAX_BYTES}, target={"max_message_bytes": 50_000})
    aside = aside_topic(pair)
    huge = Made(b"huge", os.urandom(200_000), (("own", None), ("own", b"1")), int(time.time() * 1000))
    batches = [batch_of(young(40)), batch_of([*young(10, first=40), huge, *young(10, first=50)]), batch_of(young(40))]
    write_batches(pair.source.address, topic, batches)
    (result,) = pair.complete(topic, **policy_of(by, on_too_large="aside", aside=aside))
    assert (result.aside, result.skipped, result.records) == ({"too large": 1}, {}, 100)
    expect_aside(pair, topic, aside, "too large", [50])


@pytest.mark.parametrize("by", ["auto", pytest.param("", id="at least once")])
def test_refused_timestamps_go_aside(pair: TwoClusters, by: str) -> None:
    topic = pair.topics(source={"message_timestamp_after_max_ms": str(2**62)})
    aside = aside_topic(pair)
    far_ms = int(time.time() * 1000) + 10 * HOUR_MS
    bad = {7, 8, 30}
    mixed = [
        record._replace(time_ms=far_ms) if number in bad else record
        for number, record in enumerate(young(40, first=40))
    ]
    write_batches(pair.source.address, topic, [batch_of(young(40)), batch_of(mixed, "lz4"), batch_of(young(40))])
    (result,) = pair.complete(topic, **policy_of(by, on_bad_timestamp="aside", aside=aside))
    assert (result.aside, result.skipped, result.records) == ({"bad timestamp": 3}, {}, 117)
    expect_aside(pair, topic, aside, "bad timestamp", [47, 48, 70])


@WAYS
def test_records_without_keys_go_aside_from_a_compacted_topic(pair: TwoClusters, by: str) -> None:
    topic = pair.topics(target={"cleanup_policy": "compact"})
    aside = aside_topic(pair)
    mixed = [
        record._replace(key=None) if number in {0, 39} else record for number, record in enumerate(young(40, first=40))
    ]
    write_batches(pair.source.address, topic, [batch_of(young(40)), batch_of(mixed), batch_of(young(40, first=80))])
    (result,) = pair.complete(topic, **policy_of(by, on_no_key="aside", aside=aside))
    assert (result.aside, result.skipped, result.records) == ({"no key": 2}, {}, 118)
    expect_aside(pair, topic, aside, "no key", [40, 79])


@pytest.fixture(scope="module")
def proxy(uneasy_cluster: Cluster) -> Iterator[Proxy]:
    with Proxy(uneasy_cluster.bootstrap_servers, keep_bytes=64) as standing:
        yield standing


@pytest.mark.parametrize(
    ("kind", "by"),
    [
        ("a flipped bit", "auto"),
        pytest.param("a flipped bit", "transactions", marks=pytest.mark.cluster),
        ("a truncated record", "auto"),
    ],
)
def test_damaged_batch_goes_aside_as_its_bytes(pair: TwoClusters, proxy: Proxy, by: str, kind: str) -> None:
    """Also one with a valid checksum, of which only the target's brokers find out that it is damaged."""
    topic, aside = pair.topics(PARTITIONS), aside_topic(pair)
    for partition in range(PARTITIONS):
        batches = [batch_of(young(RECORDS, first=1000 * partition + RECORDS * n)) for n in range(BATCHES)]
        write_batches(pair.source.address, topic, batches, partition)
    damaging = Damaging({SICK: (DAMAGED | MALFORMED)[kind]})
    proxy.change(Api.FETCH, damaging)
    try:
        results = pair.complete(
            topic,
            reading={"bootstrap.servers": proxy.bootstrap_servers},
            **policy_of(by, on_corrupt="aside", aside=aside),
        )
    finally:
        proxy.change(Api.FETCH, None)
    assert [result.aside for result in results] == [{}, {"corrupt": 1}, {}]
    (found,) = pair.target.records(aside)
    origin = origin_of(found)
    assert (origin["reason"], origin["partition"], origin["offset"], origin["end"]) == (
        "corrupt",
        f"{SICK}",
        f"{AT}",
        f"{AT + RECORDS}",
    )
    assert found.value is not None
    damaged = Batch(memoryview(bytearray(found.value)))
    assert (damaged.base_offset, damaged.count) == (AT, RECORDS)
    for partition, (theirs, ours) in enumerate(pair.both(topic, PARTITIONS)):
        expected = [seen for at, seen in enumerate(theirs) if partition != SICK or not AT <= at < AT + RECORDS]
        assert ours == expected


def test_record_that_the_aside_topic_does_not_take_fails_its_partition(pair: TwoClusters) -> None:
    topic = pair.topics(source={"max_message_bytes": MAX_BYTES}, target={"max_message_bytes": 50_000})
    aside = name("aside")
    pair.target.create(aside, max_message_bytes=60_000)
    huge = Made(b"huge", os.urandom(200_000))
    write_batches(pair.source.address, topic, [batch_of(made(40)), batch_of([huge]), batch_of(made(40))])
    (result,) = pair.copy(topic, on_too_large="aside", aside=aside)
    assert (result.outcome, result.end, result.aside) == (Outcome.FAILED, 40, {})
    assert f"what is at offset 40 (too large) cannot go aside: {aside} does not take its " in str(result.error)
    assert "raise its max.message.bytes" in str(result.error)
    assert pair.target.records(aside) == []
    pair.target.configure(aside, max_message_bytes=MAX_BYTES)
    (result,) = pair.complete(topic, on_too_large="aside", aside=aside)
    expect_aside(pair, topic, aside, "too large", [40])


KILLED: Final = """
import os, signal, sys
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range
from mirror.relay.partition.writers import fence, target_writer
from mirror.relay.task.copy_ranges import copy_ranges

moment, source, target, aside, ranges = sys.argv[1:]
sent = []

class Writer(target_writer.ExactlyOnceWriter):
    def send_aside(self, batch, callback):
        sent.append(batch)
        def answered(outcome):
            callback(outcome)
            if moment == "acknowledged":
                os.kill(os.getpid(), signal.SIGKILL)
        super().send_aside(batch, answered)

    def commit(self, progress, timeout_ms):
        committed = super().commit(progress, timeout_ms)
        if moment == "committed" and sent:
            committed.add_done_callback(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        return committed

from mirror.relay.task import writers
writers.ExactlyOnceWriter = Writer
copy_ranges(
    eval(ranges, {"Range": Range}),
    source_options={"bootstrap.servers": source},
    target_options={"bootstrap.servers": target},
    policy=CopyPolicy(on_no_key="aside", aside=aside),
)
"""


@pytest.mark.parametrize("moment", ["acknowledged", "committed"])
def test_killed_attempt_leaves_each_record_aside_once(pair: TwoClusters, moment: str) -> None:
    """The attempt is killed when the record is aside and its transaction open, or when that is just committed."""
    topic, aside = pair.topics(target={"cleanup_policy": "compact"}), aside_topic(pair)
    keyless = [record._replace(key=None) for record in young(3, first=40)]
    write_batches(pair.source.address, topic, [batch_of(young(40)), batch_of(keyless), batch_of(young(40, first=50))])
    arguments = [moment, pair.source.address, pair.target.address, aside, repr(pair.ranges(topic))]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    (result,) = pair.complete(topic, on_no_key="aside", aside=aside)
    assert result.aside == ({"no key": 3} if moment == "acknowledged" else {})
    expect_aside(pair, topic, aside, "no key", [40, 41, 42])
