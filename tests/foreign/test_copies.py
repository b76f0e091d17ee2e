"""Copies between Apache Kafka and brokers that are not its own, compared by confluent-kafka.

What each of them shows is in ``implementations.toml``; `make foreign` builds and fetches what these tests run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirror.client import Admin, TopicPartition
from mirror.observation import Side
from mirror.relay.model.ranges import Range
from mirror.relay.progress.committed import group_of, lazy_group_of
from mirror.sandbox.cluster import Cluster
from mirror.spark.preflight.api_table import API_USES, missing_of
from mirror.spark.preflight.old_brokers import why_no_target
from tests.copying.pair import TwoClusters
from tests.e2e.broker_side import CODECS
from tests.foreign.implementations import IMPLEMENTATIONS, STARTS, Implementation

pytestmark = pytest.mark.timeout(240)

RUN = [one for one in IMPLEMENTATIONS if one.start]
_NEEDS_NOTHING = "librdkafka"
_RECORDS = 30


def _ways(side: str) -> list[Any]:
    return [
        pytest.param(one, way, id=f"{one.start}-{way}")
        for one in RUN
        if isinstance(found := getattr(one, side), tuple)
        for way in found
    ]


def _built(one: Implementation) -> Any:
    marks = [] if one.start == _NEEDS_NOTHING else [pytest.mark.cluster]
    return pytest.param(one, id=one.start, marks=marks)


def _cluster(address: str) -> Cluster:
    return cast("Cluster", SimpleNamespace(bootstrap_servers=address))


def _policy(way: str) -> dict[str, Any]:
    return {"exactly_once": False} if way == "at-least-once" else {"exactly_once_by": way}


def _write(pair: TwoClusters, topic: str) -> None:
    """Write to each partition. The records are new, so that they may go by sequence."""
    for codec in CODECS:
        for partition in range(pair.source.partitions(topic)):
            values = [f"{codec} {number}".encode() for number in range(_RECORDS)]
            pair.source.fill(topic, values, partition, first_ms=int(time.time() * 1000), compression_type=codec)


def _again(pair: TwoClusters, topic: str) -> list[Range]:
    """The ranges from the progress on."""
    with Admin({"bootstrap.servers": pair.target.address}) as admin:

        def progress(tp: TopicPartition) -> int:
            groups = (group_of(pair.flow, tp), lazy_group_of(pair.flow, tp))
            return max(one.offset for group in groups for one in admin.group_offsets(group, [tp]).values())

        return [replace(one, start=progress(TopicPartition(topic, one.partition))) for one in pair.ranges(topic)]


def _copy_twice(pair: TwoClusters, topic: str, way: str, most_behind: int = 0) -> None:
    """``most_behind``: how many records may be left behind the end that the source names."""
    partitions = pair.source.partitions(topic)
    _write(pair, topic)
    pair.complete(topic, **_policy(way))
    _write(pair, topic)
    pair.complete(_again(pair, topic), **_policy(way))
    for theirs, ours in pair.both(topic, partitions):
        assert ours == theirs[: len(ours)]
        assert len(theirs) - len(ours) <= most_behind


@pytest.mark.cluster
@pytest.mark.parametrize(("one", "way"), _ways("source"))
def test_records_are_copied_from_there(
    target_cluster: Cluster, unique: Callable[[str], str], one: Implementation, way: str
) -> None:
    with STARTS[one.start]() as address:
        pair = TwoClusters(_cluster(address), target_cluster, unique, unique("flow").replace(".", "-"))
        topic = unique("t")
        if one.start == _NEEDS_NOTHING:
            pair.source.fill(topic, [b"first"])  # creates it
        else:
            pair.source.create(topic, 2)
        pair.target_topic(topic, pair.source.partitions(topic))
        _copy_twice(pair, topic, way, _RECORDS - 1 if one.start == "tansu" else 0)


@pytest.mark.cluster
@pytest.mark.parametrize(("one", "way"), _ways("target"))
def test_records_are_copied_there(
    source_cluster: Cluster, unique: Callable[[str], str], one: Implementation, way: str
) -> None:
    with STARTS[one.start]() as address:
        pair = TwoClusters(source_cluster, _cluster(address), unique, unique("flow").replace(".", "-"))
        topic = pair.topics(2)
        _copy_twice(pair, topic, way)
        pair.equal(topic, 2)


@pytest.mark.parametrize("one", [_built(one) for one in RUN])
def test_missing_apis_and_refusals_are_those_that_are_known(one: Implementation) -> None:
    used = [api for use in API_USES for api in use.apis]
    with STARTS[one.start]() as address, Admin({"bootstrap.servers": address}) as admin:
        versions = Side("there", admin).versions
    assert versions
    assert sorted({api.label for api in missing_of(used, versions)}) == sorted(one.missing)
    why = why_no_target("there", versions)
    assert (why is not None) == isinstance(one.target, str)
    if isinstance(one.target, str):
        assert one.target in str(why)
