"""A source that returns damaged or malformed batches: its partition stops before them, and the others are copied.

A proxy damages one batch in each response that contains it; one test damages a file. confluent-kafka reads the target.
"""

from __future__ import annotations

import os
import signal
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from crc32c import crc32c

from mirror.relay.model.ranges import Outcome
from mirror.relay.partition.limits import MAX_REFETCHES
from mirror.sandbox.cluster import Cluster
from mirror.wire.api import Api
from mirror.wire.records import HEADER_BYTES
from tests import jvm
from tests.copying.pair import TwoClusters
from tests.copying.site import name
from tests.copying.writers import batch_of, made, write_batches
from tests.fakes.record_batches import record, varint
from tests.faults.frames import Seen
from tests.faults.proxy import Proxy
from tests.polling import eventually
from tests.wire.bombs import bomb

pytestmark = pytest.mark.brokers

PARTITIONS: Final = 3
SICK: Final = 1
RECORDS: Final = 40
"""Records of each batch: more than are merged."""
BATCHES: Final = 4
AT: Final = 2 * RECORDS
"""The offset of the batch that is damaged."""

Damage = Callable[[bytearray], bytes | bytearray]


def _set(form: str, at: int, value: int, *, sealed: bool = False) -> Damage:
    def damage(batch: bytearray) -> bytearray:
        struct.pack_into(form, batch, at, value)
        return _sealed(batch) if sealed else batch

    return damage


def _sealed(batch: bytearray) -> bytearray:
    """Set the length and the checksum that match the content: a malformed batch, not a damaged one."""
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def _holding(payload: bytes, count: int = RECORDS, codec: int = 0) -> Damage:
    """Replace the records by ``payload``, with a valid checksum."""

    def damage(batch: bytearray) -> bytearray:
        struct.pack_into(">h", batch, 21, codec)
        struct.pack_into(">i", batch, 57, count)
        struct.pack_into(">i", batch, 23, RECORDS - 1)
        return _sealed(batch[:HEADER_BYTES] + payload)

    return damage


def _flipped(batch: bytearray) -> bytearray:
    batch[-7] ^= 4
    return batch


def _longer(by: int) -> Damage:
    return lambda batch: _set(">i", 8, len(batch) - 12 + by)(batch)


DAMAGED: Final[dict[str, Damage]] = {
    "a flipped bit": _flipped,
    "10 bytes missing": lambda batch: batch[:-10],
    "a length of 1 less": _longer(-1),
    "a length of 1 more": _longer(1),
    "a length of -1": _set(">i", 8, -1),
    "a length of 48": _set(">i", 8, 48),
    "a length of 2**31 - 1": _set(">i", 8, 2**31 - 1),
    "magic 3": _set(">b", 16, 3),
    "magic -1": _set(">b", 16, -1),
    "magic 1": _set(">b", 16, 1),
    "an offset that goes back": _set(">q", 0, AT - 1),
    "an offset beyond the end": _set(">q", 0, 10**9),
    "an offset of 2**63 - 1": _set(">q", 0, 2**63 - 1),
    "a count of -1": _set(">i", 57, -1, sealed=True),
    "a count of 2**31 - 1": _set(">i", 57, 2**31 - 1, sealed=True),
    "a last offset delta of -1": _set(">i", 23, -1, sealed=True),
    "a last offset delta of 2**31 - 1": _set(">i", 23, 2**31 - 1, sealed=True),
    "codec 7": _set(">h", 21, 7, sealed=True),
}
"""Damages that the shallow path detects, by headers and checksums."""

_GOOD: Final = b"".join(record(b"v", delta) for delta in range(RECORDS))
MALFORMED: Final[dict[str, Damage]] = {
    "bytes behind the last record": _holding(_GOOD + b"\0"),
    "a truncated record": _holding(_GOOD[:-2]),
    "a count too small": _holding(_GOOD, RECORDS - 1),
    "no records": _holding(b""),
    "a varint that never ends": _holding(b"\xff" * 500),
    "a record of 2**31 - 1 bytes": _holding(varint(2**31 - 1) + _GOOD),
    "2**31 - 1 headers": _holding(b"\x20\0\0\0\x01\x01" + varint(2**31 - 1) + bytes(20)),
    "offsets twice": _holding(b"".join(record(b"v", delta // 2) for delta in range(RECORDS))),
    "gzip that is none": _holding(_GOOD, codec=1),
    "zstd cut off": _holding(bomb("zstd", 16)[:-5], codec=4),
}
"""Damages that only the deep path detects: the checksums are right."""

BOMBS: Final[dict[str, Damage]] = {
    "gzip": _holding(bomb("gzip", 1024), codec=1),
    "snappy": _holding(bomb("snappy", 200), codec=2),
    "lz4": _holding(bomb("lz4", 1024), codec=3),
    "zstd": _holding(bomb("zstd", 1024), codec=4),
}


class Damaging:
    """Damages the batch at :data:`AT` of the sick partitions in each response, and counts the ``times`` of each."""

    def __init__(self, damages: Mapping[int, Damage], most: int | None = None) -> None:
        self.times = Counter[int]()
        self._damages = damages
        self._most = most

    def __call__(self, _: Seen, body: Any) -> Any:
        return replace(
            body,
            responses=tuple(
                replace(topic, partitions=tuple(self._partition(partition) for partition in topic.partitions))
                for topic in body.responses
            ),
        )

    def _partition(self, response: Any) -> Any:
        partition = response.partition_index
        if partition not in self._damages or not response.records:
            return response
        out, position, records = bytearray(), 0, bytes(response.records)
        found = False
        while position < len(records):
            base_offset, length = struct.unpack_from(">qi", records, position)
            batch = bytearray(records[position : position + 12 + length])
            position += len(batch)
            hit = base_offset == AT and (self._most is None or self.times[partition] < self._most)
            found = found or hit
            out += self._damages[partition](batch) if hit else batch
        self.times[partition] += found
        return replace(response, records=bytes(out))


@pytest.fixture(scope="module")
def filled(source_cluster: Cluster, target_cluster: Cluster) -> TwoClusters:
    return TwoClusters(source_cluster, target_cluster, name)


@pytest.fixture(scope="module")
def proxy(source_cluster: Cluster) -> Iterator[Proxy]:
    with Proxy(source_cluster.bootstrap_servers, keep_bytes=64) as standing:
        yield standing


def _topic(pair: TwoClusters, partitions: int = PARTITIONS) -> str:
    topic = pair.topics(partitions)
    for partition in range(partitions):
        batches = [batch_of(made(RECORDS, first=1000 * partition + RECORDS * n)) for n in range(BATCHES)]
        write_batches(pair.source.address, topic, batches, partition)
    return topic


def _stops_before_them(
    pair: TwoClusters, proxy: Proxy, damages: Mapping[str, Damage], *, most: int, **policy: Any
) -> dict[str, str]:
    """Copy a sick partition for each kind, between two healthy ones; return the error of each kind.

    Only records before the damage are copied of the sick partitions; all of the others.
    """
    partitions, sick = len(damages) + 2, dict(enumerate(damages, SICK))
    topic, damaging = _topic(pair, partitions), Damaging(dict(enumerate(damages.values(), SICK)))
    proxy.change(Api.FETCH, damaging)
    try:
        results = pair.copy(topic, reading={"bootstrap.servers": proxy.bootstrap_servers}, **policy)
    finally:
        proxy.change(Api.FETCH, None)
    by_partition = {result.partition: result for result in results}
    errors = {}
    for partition, (theirs, ours) in enumerate(pair.both(topic, partitions)):
        kind, result = sick.get(partition), by_partition[partition]
        assert result.outcome is (Outcome.FAILED if kind else Outcome.COMPLETE), (kind, result)
        values = [record.value for record in theirs]
        assert [record.value for record in ours] == (values[:AT] if kind else values), kind
        if kind:
            assert result.end == AT, kind
            assert 1 <= damaging.times[partition] <= most, kind
            errors[kind] = str(result.error)
            assert errors[kind].startswith(f"{topic}-{partition}: nothing from offset {AT} on was copied: ")
            assert "\n" not in errors[kind]
    pair.complete(topic, **policy)
    for source, target in pair.both(topic, partitions):
        assert [record[:2] for record in target] == [record[:2] for record in source]
    return errors


def test_partitions_stop_before_damaged_batches_and_the_others_are_copied(filled: TwoClusters, proxy: Proxy) -> None:
    # Each time, a batch beyond the high watermark is fetched once more. Three times more: the first response has the
    # batches before it, too, another fetch may be in flight, and the way changes, as the records are old.
    errors = _stops_before_them(filled, proxy, DAMAGED, most=2 * (MAX_REFETCHES + 1) + 3)
    for kind, error in errors.items():
        assert error.endswith("; mend the source's log, or make another replica the leader"), kind


def test_partitions_stop_before_malformed_records(filled: TwoClusters, proxy: Proxy) -> None:
    errors = _stops_before_them(filled, proxy, MALFORMED, most=MAX_REFETCHES + 3, headers=(("h", b"x"),))
    for kind, error in errors.items():
        assert error.endswith("; mend the source's log, or make another replica the leader"), kind


# The suite has each codec in tests/wire/test_bombs.py.
@pytest.mark.parametrize(
    "codec", [codec if codec == "zstd" else pytest.param(codec, marks=pytest.mark.cluster) for codec in BOMBS]
)
def test_partition_stops_before_a_decompression_bomb(filled: TwoClusters, proxy: Proxy, codec: str) -> None:
    error = _stops_before_them(filled, proxy, {codec: BOMBS[codec]}, most=2, headers=(("h", b"x"),))[codec]
    assert f"bytes of {codec} that are more than 134217728 when decompressed" in error
    assert error.endswith(
        "; if you trust its producer, raise the flow's buffer.memory to more than a quarter of the batch's size"
    )


def test_batch_damaged_in_transit_is_fetched_again_and_copied(filled: TwoClusters, proxy: Proxy) -> None:
    topic, damaging = _topic(filled), Damaging({SICK: _flipped}, most=MAX_REFETCHES)
    proxy.change(Api.FETCH, damaging)
    try:
        filled.complete(topic, reading={"bootstrap.servers": proxy.bootstrap_servers})
    finally:
        proxy.change(Api.FETCH, None)
    assert damaging.times[SICK] == MAX_REFETCHES
    filled.equal(topic, PARTITIONS)


# In the suite, the proxy damages a bit of a response in the same way.
@pytest.mark.cluster
def test_log_damaged_on_disk_stops_only_its_partition(target_cluster: Cluster) -> None:
    """A byte changes in a segment while its broker is down; a broker does not recover logs after a clean shutdown."""
    with Cluster(heap=jvm.BROKER) as source:
        pair = TwoClusters(source, target_cluster, name)
        topic = _topic(pair)
        os.kill(source.pids[1], signal.SIGTERM)
        eventually(lambda: 1 not in source.pids, within_s=30, what="the broker's clean shutdown")
        (segment,) = (source.directory / "broker-1" / "data" / f"{topic}-{SICK}").glob("*.log")
        data = bytearray(segment.read_bytes())
        data[len(data) * 5 // 8] ^= 1
        segment.write_bytes(data)
        source.restart(1)
        results = {result.partition: result for result in pair.copy(topic)}
        assert results[SICK].outcome is Outcome.FAILED
        assert f"{topic}-{SICK}: nothing from offset {AT} on was copied: the batch at offset {AT}" in str(
            results[SICK].error
        )
        healthy = [partition for partition in range(PARTITIONS) if partition != SICK]
        assert [results[partition].outcome for partition in healthy] == [Outcome.COMPLETE] * len(healthy)
        ours = pair.target.logs(topic, PARTITIONS)
        assert [len(log) for log in ours] == [RECORDS * BATCHES, AT, RECORDS * BATCHES]
