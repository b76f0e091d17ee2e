"""A copy that verifies itself while it copies, on real brokers whose log another client, or the disk, has changed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mirror.client import Producer, TopicPartition
from mirror.relay.model.ranges import Outcome
from mirror.relay.readback.reader import TargetReadBack
from mirror.relay.readback.written import WrittenBatch
from mirror.sandbox.cluster import Cluster
from tests.copying.pair import TwoClusters

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(240)]

BATCHES = 12
WAYS: dict[str, dict[str, Any]] = {
    "transactions": {"exactly_once_by": "transactions"},
    "auto": {"exactly_once_by": "auto"},
    "at least once": {"exactly_once": False},
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    return WAYS[request.param]


def fill(pair: TwoClusters, topic: str) -> None:
    """Batches that are passed on as they are: large ones, also compressed."""
    now_ms, rng = time.time_ns() // 1_000_000, random.Random(1)
    for number in range(BATCHES):
        values = [rng.randbytes(1_500) for _ in range(10)]
        pair.source.fill(topic, values, first_ms=now_ms + 10 * number, compression_type="lz4")


def behind_the_commit_of(
    monkeypatch: pytest.MonkeyPatch, source_offset: int, act: Callable[[WrittenBatch], None]
) -> None:
    """Call ``act`` behind the commit of the batch with this offset, before it is read back."""
    add = TargetReadBack.add

    def added(
        self: TargetReadBack, tp: TopicPartition, written: Sequence[WrittenBatch], *args: Any, **more: Any
    ) -> None:
        for one in written:
            if one.source_start <= source_offset < one.source_end:
                act(one)
        add(self, tp, written, *args, **more)

    monkeypatch.setattr(TargetReadBack, "add", added)


@pytest.mark.parametrize(
    ("configs", "unverified"),
    [
        ({}, set()),
        ({"message_timestamp_type": "LogAppendTime"}, set()),
        ({"cleanup_policy": "compact"}, set()),
        ({"compression_type": "gzip"}, {"recompressed by the broker"}),
    ],
    ids=["plain", "append time", "compacted", "recompressed"],
)
def test_what_brokers_change_is_no_difference(
    pair: TwoClusters, way: dict[str, Any], configs: dict[str, object], unverified: set[str]
) -> None:
    topic = pair.topics(target=configs)
    fill(pair, topic)
    (result,) = pair.complete(topic, verify="all", **way)
    assert result.read_back is not None
    assert (result.read_back["differences"], set(result.read_back["unverified"])) == ({}, unverified)
    verified = result.read_back["batches"] + sum(result.read_back["unverified"].values())
    assert verified == result.batches
    if not unverified:
        assert (result.read_back["records"], result.read_back["verified_to"]) == (10 * BATCHES, 10 * BATCHES)


def test_byte_that_changes_on_the_disk_of_the_target_is_found(
    pair: TwoClusters, target_cluster: Cluster, way: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = pair.topics()
    fill(pair, topic)
    hit = list[WrittenBatch]()

    def damage(one: WrittenBatch) -> None:
        hit.append(one)
        (segment,) = target_cluster.directory.glob(f"*/data/{topic}-0/*.log")
        content, offset = segment.read_bytes(), one.target_offset.to_bytes(8, "big")
        position = content.index(offset + (one.size - 12).to_bytes(4, "big"))
        with segment.open("r+b") as file:
            file.seek(position + one.size - 5)
            file.write(bytes([content[position + one.size - 5] ^ 0x01]))

    behind_the_commit_of(monkeypatch, 75, damage)
    (result,) = pair.copy(topic, verify="all", **way)
    assert result.outcome is Outcome.COMPLETE, result.error
    assert result.read_back is not None
    (found,) = result.read_back["found"]
    assert (found["kind"], found["start"], found["target_offset"]) == (
        "content",
        hit[0].source_start,
        hit[0].target_offset,
    )
    assert "its CRC-32C is" in found["reason"]


def test_batch_that_another_client_repeats_is_found(
    pair: TwoClusters, way: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = pair.topics()
    fill(pair, topic)
    done = list[int]()

    def repeat(_: WrittenBatch) -> None:
        original = pair.target.batches(topic)[0]
        with Producer({"bootstrap.servers": pair.target.address}) as producer:
            metadata = producer.send_batch(TopicPartition(topic, 0), original).result(30)
        done.append(metadata.base_offset)

    behind_the_commit_of(monkeypatch, 5, repeat)
    # Slowly, so that the first batch is committed long before the last one is sent.
    (result,) = pair.complete(topic, verify="all", max_bytes_per_second=60_000, commit_interval_ms=100, **way)
    assert result.read_back is not None
    if way.get("exactly_once", True):
        found = [one for one in result.read_back["found"] if one["kind"] == "doubled"]
        assert [(one["start"], one["target_offset"]) for one in found] == [(0, done[0])], result.read_back
    else:
        assert result.read_back["differences"] == {}
