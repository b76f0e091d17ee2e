"""What a copy does not keep is counted, and plain Spark is measured as RESULTS.md says."""

from __future__ import annotations

import dataclasses

import pytest

from tests.benchmarks.bench_losses import Seen, differences, measure
from tests.benchmarks.plain_spark.command import AVAILABLE_NOW, MICRO_BATCHES, REAL_TIME, PlainSpark, settings


def _seen(number: int, offset: int, partition: int = 0, time_ms: int = 1_000) -> Seen:
    return Seen(partition, offset, time_ms, f"0-{number}", (b"k", b"v", ()))


SOURCE = [_seen(number, number) for number in range(4)]
NONE = dict.fromkeys(differences(SOURCE, SOURCE), 0)


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (SOURCE, {}),
        (SOURCE[1:], {"missing": 1}),
        ([*SOURCE, _seen(3, 4)], {"doubled": 1, "other_offset": 1}),
        ([*SOURCE, Seen(0, 4, 0, "0-9", ())], {"aborted": 1}),
        ([*SOURCE[:3], _seen(3, 3, partition=1)], {"moved": 1}),
        ([SOURCE[0], _seen(2, 1), _seen(1, 2), SOURCE[3]], {"reordered": 1, "other_offset": 2}),
        ([*SOURCE[:3], dataclasses.replace(SOURCE[3], content=(b"k", None, ()))], {"changed": 1}),
        ([*SOURCE[:3], _seen(3, 3, time_ms=9)], {"retimed": 1}),
    ],
)
def test_each_difference_is_counted_for_itself(target: list[Seen], found: dict[str, int]) -> None:
    assert differences(SOURCE, target) == NONE | found


def test_a_copy_of_much_has_the_settings_of_a_tuned_mirrormaker_and_a_stream_has_the_clients_own() -> None:
    common = ("one:1", "two:2", "orders", "a.orders", "/checkpoint")
    much = settings(PlainSpark(*common, AVAILABLE_NOW, codec="lz4"), jars=())
    assert much["writing"]["kafka.batch.size"] == "262144"
    assert much["writing"]["kafka.compression.type"] == "lz4"
    assert much["reading"]["kafka.max.partition.fetch.bytes"] == "4194304"
    stream = settings(PlainSpark(*common, MICRO_BATCHES, most_offsets=7, master="spark://host:1"), jars=())
    assert stream["reading"]["maxOffsetsPerTrigger"] == "7"
    real_time = settings(PlainSpark(*common, REAL_TIME, most_offsets=7), jars=())
    assert "maxOffsetsPerTrigger" not in real_time["reading"]
    assert not [key for key in stream["writing"] if "batch" in key or "linger" in key]
    assert "spark.driver.memory" not in stream["session"]
    for one in (much, stream):
        assert one["reading"]["kafka.isolation.level"] == "read_committed"
        assert one["reading"]["includeHeaders"] == "true"


@pytest.mark.cluster
@pytest.mark.brokers
@pytest.mark.spark
@pytest.mark.timeout(480)
def test_plain_spark_keeps_records_and_order_and_neither_timestamps_nor_what_is_beside_them() -> None:
    found = measure("plain-spark", records=60_000)
    kept = ("missing", "doubled", "aborted", "moved", "reordered", "changed", "killed_missing")
    assert {name: found[name] for name in kept} == dict.fromkeys(kept, 0)
    assert found["retimed"] == found["records"]
    assert not found["configuration"] | found["acl"] | found["group"]
    assert 0 < found["killed_doubled"] <= 60_000
