"""Clusters in memory for the tests of the Spark layer, set up by numbers: what a plan or a status is made from.

A :class:`FakeCluster` is found by its bootstrap server, whose port is 1; each test has clusters of its own
(:func:`use_clusters`). Nothing is copied here: these tests are about offsets, not records.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Self

import pytest

from mirror.client import Admin, TopicPartition
from mirror.cluster.settings import ClusterSettings
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.progress.committed import Progress, group_of, read_progress, to_offset
from mirror.relay.progress.status_topic import StatusNews
from mirror.wire.records import HEADER_BYTES, TRANSACTIONAL
from tests.fakes import inline
from tests.fakes.cluster import FakeCluster, FakeTopic
from tests.fakes.log import PartitionLog
from tests.fakes.record_batches import build
from tests.fakes.transactions import State, Transaction
from tests.spark.moods import apply_moods

NOW_MS = 1_800_000_000_000
"""When these tests take place, ms since 1970."""

_BROKERS: Final = 3
_RECORD_BYTES: Final = 100
_LARGE: Final = 1_000
_SINGLE: Final = 200
"""So many records are batches of their own; record n has the time stamp n."""
_PORT: Final = 1
_clusters: Final[dict[str, FakeCluster]] = {}
_gone: Final[dict[str, dict[str, FakeTopic]]] = {}
"""The topics of each cluster that were taken away, which may come back."""


def use_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the clients of this test reach clusters of its own."""
    _clusters.clear()
    _gone.clear()

    def cluster_of(settings: ClusterSettings) -> FakeCluster | None:
        host, port = settings.bootstrap[0]
        return Cluster(f"{host}:{port}").kafka if port == _PORT else None

    inline.use(monkeypatch, cluster_of)


class Cluster:
    """One cluster. ``server`` is its bootstrap server."""

    def __init__(self, server: str) -> None:
        self.server = server

    def stop(self) -> None:
        """No broker of it answers any more."""
        for node in self.kafka.brokers:
            self.kafka.kill(node)

    def start(self) -> None:
        for node in self.kafka.brokers:
            self.kafka.start(node)

    @property
    def kafka(self) -> FakeCluster:
        """The cluster itself; one that was not made has no broker that is up."""
        found = _clusters.get(self.server)
        if found is None:
            found = self._new()
            for node in found.brokers:
                found.kill(node)
        return found

    def _new(self) -> FakeCluster:
        made = FakeCluster(_BROKERS, cluster_id=f"id-{self.server}", seed=len(_clusters))
        host, port = self.server.split(":")
        for broker in made.brokers.values():
            broker.host, broker.port = host if broker.node == 1 else f"{host}-{broker.node}", int(port)
        apply_moods(made, {})
        return made

    def make(self) -> Self:
        _clusters[self.server] = self._new()
        return self

    def add_topic(
        self,
        name: str,
        ends: Sequence[int],
        *,
        earliest: int = 0,
        replicas: int = 3,
        configs: Mapping[str, str] = MappingProxyType({}),
    ) -> Self:
        topic = self.kafka.add_topic(name, 0, **configs)
        topic.replicas = replicas
        for end in ends:
            log = PartitionLog(leader=1, start_offset=earliest, end_offset=earliest)
            topic.partitions.append(log)
            _fill(topic, log, end)
        return self

    def produce(self, topic: str, partition: int, records: int) -> None:
        log = self.kafka.log(topic, partition)
        _fill(self.kafka.topics[topic], log, log.end_offset + records)

    def progress(self, flow: str, topic: str, partition: int) -> int | None:
        """The committed progress of a target partition."""
        tp = TopicPartition(topic, partition)
        kept = self.kafka.groups[group_of(flow, tp)].get(tp)
        return None if kept is None else kept.offset

    def begin_transaction(
        self, topic: str, partition: int, records: int, *, producer: int = 7, start: int | None = None, last: int = -1
    ) -> Self:
        """A transaction with ``records`` behind the end; ``start`` (ms) is when it began, if its coordinator tells."""
        log = self.kafka.log(topic, partition)
        log.append_values(*[b""] * records, attributes=TRANSACTIONAL, producer_id=producer, epoch=3)
        log.producers[producer].last_ms = last
        if start is not None:
            found = Transaction(producer, 60_000, epoch=3, state=State.ONGOING, begun_ms=start)
            self.kafka.transactions.ids[f"id-{producer}"] = found
        return self

    def end_transaction(self, topic: str, partition: int) -> Self:
        """It is committed."""
        log = self.kafka.log(topic, partition)
        (producer,) = log.open_transactions
        log.end_transaction(producer, commit=True, epoch=3)
        self.kafka.transactions.ids.pop(f"id-{producer}", None)
        return self

    def set_moods(self, moods: Mapping[str, str]) -> Self:
        """What the brokers refuse from now on, see :mod:`tests.spark.moods`."""
        apply_moods(self.kafka, moods)
        return self

    # --- the state as numbers

    def state(self) -> dict[str, Any]:
        kafka = self.kafka
        return {
            "id": kafka.cluster_id,
            "topics": {name: _state_of(topic) for name, topic in kafka.topics.items()},
            "groups": {
                group: {str(tp): (one.offset, one.leader_epoch, one.metadata) for tp, one in offsets.items()}
                for group, offsets in kafka.groups.items()
                if offsets
            },
        }

    @contextlib.contextmanager
    def change(self) -> Iterator[dict[str, Any]]:
        """The state, to be changed: topics and offsets that go, partitions that come, and their numbers."""
        gone = _gone.setdefault(self.server, {})
        kafka, before, state = self.kafka, dict(self.kafka.topics), self.state()
        yield state
        kafka.cluster_id = state["id"]
        for name in [name for name in kafka.topics if name not in state["topics"]]:
            gone[name] = kafka.topics.pop(name)
        for name, numbers in state["topics"].items():
            topic = kafka.topics[name] = before.get(name) or gone.pop(name)
            for number, each in enumerate(numbers["partitions"]):
                if number == len(topic.partitions):
                    topic.partitions.append(PartitionLog(leader=1))
                log = topic.partitions[number]
                log.leader, log.start_offset = each["leader"], each["earliest"]
                _fill(topic, log, each["end"])
        for group, offsets in kafka.groups.items():
            kept = state["groups"].get(group, {})
            for tp in [tp for tp in offsets if str(tp) not in kept]:
                del offsets[tp]


def _fill(topic: FakeTopic, log: PartitionLog, end: int) -> None:
    """Append records up to ``end``; one takes what ``record_bytes`` of the topic's configuration says."""
    size = int(topic.configs.get("record_bytes", _RECORD_BYTES))
    start = log.end_offset = max(log.end_offset, log.start_offset)
    if end - start <= _SINGLE and HEADER_BYTES < size <= _LARGE:
        for offset in range(start, end):
            log.append(_record(size, offset))
    elif end > start:
        # They are not read, only counted.
        log.append(build([b""], payload=b"", last_offset_delta=end - start - 1))
        log.unread_bytes += (end - start) * size - HEADER_BYTES


def _record(size: int, timestamp: int) -> bytearray:
    one = build([b""], payload=bytes(size - HEADER_BYTES), timestamp=timestamp)
    assert len(one) == size
    return one


def _state_of(topic: FakeTopic) -> dict[str, Any]:
    return {
        "id": str(topic.topic_id),
        "partitions": [
            {
                "earliest": log.start_offset,
                "end": log.last_stable_offset,
                "replicas": topic.replicas or _BROKERS,
                "leader": log.leader,
            }
            for log in topic.partitions
        ],
        "configs": dict(topic.configs),
    }


def copy_ranges(ranges: Iterable[Range], *, target_options: Mapping[str, object], **_: object) -> list[RangeResult]:
    """Move numbers where a task moves batches, from the progress, and commit them."""
    return [_copy(each, Cluster(str(target_options["bootstrap.servers"]))) for each in ranges]


def _copy(each: Range, target: Cluster) -> RangeResult:
    tp = TopicPartition(each.target_topic, each.partition)
    with Admin({"bootstrap.servers": target.server}) as admin:
        known = read_progress(admin, each.flow, [tp]).get(tp)
        start = known.offset if known else each.start
        target.produce(*tp, each.end - start)
        moved = Progress(
            offset=each.end,
            leader_epoch=0,
            source_cluster_id=each.source_cluster_id,
            topic_id=each.topic_id,
            time_ms=NOW_MS,
        )
        admin.commit_group_offsets(group_of(each.flow, tp), {tp: to_offset(moved)})
    result = RangeResult.initial(each, start, Outcome.COMPLETE)
    result.end, result.records, result.batches, result.bytes = each.end, each.end - start, 1, (each.end - start) * 100
    return result


class SilentWriter:
    """In place of a StatusWriter: these clusters keep no records."""

    def __init__(self, *_: object) -> None: ...

    def send(self, *_: object) -> None: ...

    def put(self, *_: object) -> None: ...

    def close(self, *_: object) -> None: ...


class SilentFollower:
    """In place of a StatusFollower: these clusters keep no records."""

    def __init__(self, *_: object) -> None: ...

    def news(self, *_: object) -> StatusNews:
        return StatusNews(again=True, records=[])

    def wake(self) -> None: ...

    def close(self) -> None: ...
