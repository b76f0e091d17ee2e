"""Verification of real logs that confluent-kafka, or a copy, has written."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer as Confluent

from mirror.client import TopicPartition
from mirror.runtime.clock import SystemClock
from mirror.sandbox.cluster import Cluster
from mirror.verify.comparison import Comparison
from mirror.verify.log_reader import LogReader
from mirror.verify.partition_results import PartitionResult
from mirror.verify.proof import Link, Proof, proved_ranges
from mirror.verify.values import Bounds, Kind
from tests.copying.writers import made, write
from tests.relay.batches.logs_by_hand import Made
from tests.verify.damages import DAMAGES, source_records
from tests.verify.harmless_records import RECORD_CASES
from tests.verify.logs import RECORDS, Found, found_in
from tests.verify.verified_pair import FLOW, VerifiedPair, write_batches

pytestmark = pytest.mark.brokers

_SEED = int(os.environ.get("VERIFY_SEED", "25"))
_DRAWN = 20


@pytest.fixture
def pair(
    source_cluster: Cluster, target_cluster: Cluster, unique: Callable[[str], str], tmp_path: Path
) -> VerifiedPair:
    return VerifiedPair(source_cluster, target_cluster, unique("v"), tmp_path)


def _writable(records: list[Made]) -> bool:
    """Whether librdkafka writes them as they are: it has no records without a timestamp."""
    return all(record.time_ms > 0 for record in records)


def test_copy_is_equal_until_another_client_writes_to_the_target(pair: VerifiedPair) -> None:
    topic = pair.topics(2)
    pair.configure_flow(topic)
    for partition in range(2):
        write(Confluent({"bootstrap.servers": pair.source.address}), topic, made(300), partition)
    pair.complete(topic)
    results = pair.verify()
    assert [result.outcome for result in results] == ["equal", "equal"]
    assert [result.verdict and result.verdict.source_end for result in results] == [300, 300]
    assert sum(result.verdict.batches for result in results if result.verdict) > 0, "compared as bytes"
    proof = Proof().extended(_link(pair, results))

    # Nothing is read again of what is proved, and what is new is copied and proved.
    assert pair.plan(proof=proof).ranges == []
    write(Confluent({"bootstrap.servers": pair.source.address}), topic, made(50, first=300), 0)
    pair.complete(topic)
    first, second = pair.verify(proof=proof)
    assert first.verdict is not None
    assert second.verdict is not None
    assert (first.verdict.source_start, first.verdict.records, second.verdict.records) == (300, 50, 0)

    # Others write to the target: a record that is there already, and one that the source does not have.
    end = pair.target.ends(topic, 1)[1]
    write(Confluent({"bootstrap.servers": pair.target.address}), topic, [*made(1, first=299), *made(1, first=900)], 1)
    first, second = pair.verify()
    assert first.outcome == "equal"
    assert second.verdict is not None
    assert found_in(second.verdict.differences) == [Found(Kind.DOUBLED, 299, end), Found(Kind.FOREIGN, 300, end + 1)]
    assert [one.outcome for one in pair.verify(proof=proof)] == ["equal", "different"]

    # The proof holds, as far as both sides have it still.
    assert {one.outcome for one in pair.verify(proof=proof, checks=True)} == {"equal"}
    pair.target.delete_records(topic, 100, 0)
    pair.source.delete_records(topic, 50, 0)
    first = pair.verify()[0]
    assert first.verdict is not None
    assert first.outcome == "equal"
    assert [(one.side, one.start) for one in first.verdict.uncompared] == [("source", 50)]
    assert first.verdict.records + first.verdict.uncompared[0].end == 350


@pytest.mark.cluster
def test_drawn_damage_is_found_on_brokers(pair: VerifiedPair) -> None:
    drawn = random.Random(_SEED).sample(DAMAGES, _DRAWN)
    topic = pair.topics(_DRAWN)
    pair.configure_flow(topic)
    source = source_records()
    expected = []
    for partition, damage in enumerate(drawn):
        target = list(source)
        expected.append(damage.change(target))
        write_batches(pair.source.address, topic, source, partition)
        write_batches(pair.target.address, topic, target, partition)
    pair.commit_progress(topic, [RECORDS] * _DRAWN)
    found = [
        sorted(found_in(result.verdict.differences)) if result.verdict is not None else result.error
        for result in pair.verify()
    ]
    names = [damage.name for damage in drawn]
    assert dict(zip(names, found, strict=True)) == dict(zip(names, map(sorted, expected), strict=True)), _SEED


@pytest.mark.cluster
def test_drawn_harmless_difference_raises_no_alarm_on_brokers(pair: VerifiedPair) -> None:
    writable = [case for case in RECORD_CASES if _writable(case.source()) and _writable(case.target(case.source()))]
    drawn = random.Random(_SEED).sample(writable, _DRAWN)
    topic = pair.topics(_DRAWN, both={"max_message_bytes": 1_000_000, "message_timestamp_after_max_ms": 2**62})
    with (
        LogReader({"bootstrap.servers": pair.source.address}, SystemClock(), 30_000) as of_source,
        LogReader({"bootstrap.servers": pair.target.address}, SystemClock(), 30_000) as of_target,
    ):
        for partition, case in enumerate(drawn):
            source = case.source()
            target = case.target(source)
            write_batches(pair.source.address, topic, source, partition)
            write_batches(pair.target.address, topic, target, partition, codec=case.codec)
            tp = TopicPartition(topic, partition)
            bounds = Bounds(source_start=0, source_end=len(source), target_start=0, target_end=len(target))
            logs = of_source.read(tp, 0, len(source)), of_target.read(tp, 0, len(target))
            verdict = Comparison(*logs, bounds, case.rules, ((), ())).run()  # nothing is compacted
            assert found_in(verdict.differences) == [], (case.name, _SEED)
            assert (verdict.source_end, verdict.target_end) == (len(source), len(target)), case.name
            assert {name: verdict.named[name] for name in case.named} == case.named, case.name


def _link(pair: VerifiedPair, results: list[PartitionResult]) -> Link:
    plan = pair.plan()
    return Link(
        time="2026-01-31T00:00:00+00:00",
        version="1",
        flow=FLOW,
        source_cluster_id=plan.source_cluster_id,
        target_cluster_id=plan.target_cluster_id,
        settings={},
        ranges=proved_ranges(results),
    )
