"""What goes wrong in one partition: its result says what, where and why; its neighbours are copied; status 3."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mirror.sandbox import copy_verifier
from mirror.sandbox.cluster import Cluster
from tests.e2e.broker_side import FIRST_MS, Side
from tests.e2e.site import Site, flow
from tests.polling import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

BATCH = 50
"""Records of each batch of the damaged topic."""
SLOWLY = """commit-interval-ms = 20
max-bytes-per-second = 20000"""
"""So that the topic can be deleted while it is copied."""


def test_partitions_fail_alone(
    site: Site,
    source: Side,
    target: Side,
    guarded: Side,
    guarded_cluster: Cluster,
    unique: Callable[[str], str],
) -> None:
    """One session, one flow for each reason."""
    names = ["damaged", "gaps", "append-time", "fewer", "more", "large", "deleted"]
    topics = {name: unique(name) for name in names}
    _damaged(guarded, guarded_cluster, topics["damaged"])
    _with_gaps(guarded, topics["gaps"])
    for name, partitions, there, config in [
        ("append-time", 2, 2, {"message_timestamp_type": "LogAppendTime"}),
        ("fewer", 3, 1, {}),
        ("more", 1, 3, {}),
        ("large", 2, 2, {}),
    ]:
        source.create(topics[name], partitions, **config)
        target.create(f"a.{topics[name]}", there, **({"max_message_bytes": 2000} if name == "large" else {}))
        for partition in range(partitions):
            source.fill(topics[name], [b"1", b"2"], partition)
    source.fill(topics["large"], [random.Random(1).randbytes(5000)], 1)
    source.fill(topics["large"], [b"3"], 1)
    source.create(topics["deleted"])
    source.fill(topics["deleted"], (b"%d" % n for n in range(5000)), batch_num_messages=1, linger_ms=0)

    addresses = {"a": source.address, "g": guarded.address, "b": target.address}
    flows = {
        name: flow("g" if name in {"damaged", "gaps"} else "a", "b", [topics[name]], *[SLOWLY] * (name == "deleted"))
        for name in names
    }
    site.write(addresses, flows, a={"default.api.timeout.ms": 8000})
    child = site.start()
    # Not the target's end: the marker of a fence is there before the first record.
    copied_there = f"a.{topics['deleted']}"
    eventually(lambda: target.progress("deleted", copied_there) > 0, within_s=400, what="the last flow's first records")
    source.delete(topics["deleted"])
    run = site.finish(child)

    assert (run.status, run.errors) == (3, [])
    assert "Traceback" not in run.out + run.err
    found = {name: {key[1]: each for key, each in site.partitions(name).items()} for name in names}

    failed = found["damaged"].pop(1)
    _says(
        failed,
        0,
        2 * BATCH,
        f"{topics['damaged']}-1",
        f"offset {2 * BATCH} ",
        "CRC-32C",
        f"nothing from offset {2 * BATCH} on",
    )
    _complete(found["damaged"], {0: 4 * BATCH, 2: 4 * BATCH})
    assert len(target.read(f"g.{topics['damaged']}", 1)) == 2 * BATCH

    # What could not be passed on as it is was re-encoded.
    assert found["gaps"][0]["deep"]["offset gaps"] >= 1
    assert found["gaps"][0]["gaps"]["compacted"] > 0
    assert all(each["deep"] == {"log append time": 1} for each in found["append-time"].values())
    assert {each["outcome"] for name in ("gaps", "append-time") for each in found[name].values()} == {"complete"}
    assert target.read(f"g.{topics['gaps']}")[-1] == b"last"  # both sides go on compacting
    name_there = f"a.{topics['append-time']}"
    # Their times are of another kind on each side: see tests/copying for their values.
    verdict = copy_verifier.compare(source.address, topics["append-time"], target.address, name_there, timestamps=False)
    assert verdict.equal, verdict.difference
    _not_extended(found["fewer"], target, f"a.{topics['fewer']}")
    _complete(found["more"], {0: 2})
    assert target.read(f"a.{topics['more']}") == [b"1", b"2"]
    assert [target.end(f"a.{topics['more']}", partition) for partition in (1, 2)] == [0, 0]

    failed = found["large"].pop(1)
    _says(failed, 0, 2, f"{topics['large']}-1", "offset 2 ", "MESSAGE_TOO_LARGE", "max.message.bytes", "on-too-large")
    _complete(found["large"], {0: 2})
    assert target.read(f"a.{topics['large']}", 1) == [b"1", b"2"]

    failed = found["deleted"][0]
    _says(failed, 0, failed["records"], f"{topics['deleted']}-0", "the source topic is gone")
    assert 0 < failed["records"] < 5000
    copied = target.read(f"a.{topics['deleted']}")
    assert copied == [b"%d" % n for n in range(failed["records"])]


def _says(result: dict[str, Any], start: int, end: int, *parts: str) -> None:
    assert (result["outcome"], result["start"], result["end"]) == ("failed", start, end), result
    assert [part for part in parts if part not in result["error"]] == [], result["error"]


def _not_extended(results: dict[int, dict[str, Any]], target: Side, topic: str) -> None:
    """Others have created it, and nothing shows that the flow may change it."""
    why = f"target topic {topic} has 1 partition, 3 are needed, and nothing shows that it is flow fewer's: add them, or"
    assert {(each["outcome"], each["records"]) for each in results.values()} == {("failed", 0)}
    assert {each["error"] for each in results.values()} == {f"{why} mirror apply --flow fewer --adopt {topic}"}
    assert (target.partitions(topic), target.end(topic)) == (1, 0)


def _complete(results: dict[int, dict[str, Any]], records: dict[int, int]) -> None:
    assert {key: (each["outcome"], each["records"], each["error"]) for key, each in results.items()} == {
        key: ("complete", count, None) for key, count in records.items()
    }


def _damaged(side: Side, cluster: Cluster, topic: str) -> None:
    """Three partitions of four batches; in the second one the third batch differs by a byte from what was written."""
    side.create(topic, 3)
    for partition in range(3):
        for batch in range(4):
            side.fill(topic, [b"%d-%d-" % (batch, n) + b"x" * 100 for n in range(BATCH)], partition)
    (segment,) = Path(cluster.directory).glob(f"*/data/{topic}-1/00000000000000000000.log")
    with segment.open("r+b") as file:
        file.seek(file.read().index(b"2-7-xxx") + 5)
        file.write(b"Y")


def _with_gaps(side: Side, topic: str) -> None:
    """Two partitions of a compacted topic; the first one's first batch has lost records."""
    side.create(topic, 2, cleanup_policy="compact", segment_ms=1000, min_cleanable_dirty_ratio=0.01)
    side.fill(topic, [b"1"], 1)
    side.fill(topic, [b"%d" % n for n in range(20)])
    # The log begins a new segment by the records' own time; only the older one is compacted.
    side.fill(topic, [b"last"], first_ms=FIRST_MS + 10_000)
    eventually(lambda: b"0" not in side.read(topic), within_s=60, what="the compaction")
