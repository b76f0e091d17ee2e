"""A group with offsets of 5,000 partitions moves to the target. Real clusters; confluent-kafka commits and checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition

from mirror.groups.positions import GroupsReport
from tests.conftest import NewCluster
from tests.copying.group_site import commit, consumer_of, group_sync
from tests.copying.pair import End, TwoClusters

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(900)]

_PARTITIONS: Final = 5_000
_PORTION: Final = 500
"""So many partitions are created, copied and committed at once: a broker refuses more than 10,000 in one request."""
_RECORDS: Final = 4
_MOVED: Final = 10
_PROPERTIES: Final = {
    # The two indexes of a segment take 10 MiB of address space each unless it is less.
    "log.index.size.max.bytes": "262144",
}


@pytest.fixture
def pair(new_cluster: NewCluster, unique: Callable[[str], str]) -> TwoClusters:
    return TwoClusters(new_cluster(properties=_PROPERTIES), new_cluster(properties=_PROPERTIES), unique, unique("flow"))


def _portions() -> Iterator[range]:
    return (range(at, at + _PORTION) for at in range(0, _PARTITIONS, _PORTION))


def _create(end: End, topic: str) -> None:
    end.create(topic, _PORTION)
    for count in range(2 * _PORTION, _PARTITIONS + 1, _PORTION):
        end.grow(topic, count)


def _fill(end: End, topic: str, counts: Mapping[int, int]) -> None:
    """Produce ``counts`` records, by partition."""
    producer = end.producer()
    for partition, count in counts.items():
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0


def _commit(end: End, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    commit(end, group, topic, offsets[0], "at 0")
    with consumer_of(end, group) as consumer:
        for portion in _portions():
            part = [
                ConfluentPartition(topic, number, offsets[number], f"at {number}")
                for number in portion
                if number in offsets
            ]
            if part:
                consumer.commit(offsets=part, asynchronous=False)


def _committed(end: End, group: str, topic: str) -> dict[int, tuple[int, str]]:
    found = {}
    with consumer_of(end, group) as consumer:
        for portion in _portions():
            for one in consumer.committed([ConfluentPartition(topic, number) for number in portion], timeout=60):
                found[one.partition] = one.offset, one.metadata or ""
    return found


def _assert_in_step(report: GroupsReport, group: str, written: int) -> None:
    state = report.groups[group]
    assert (state.is_in_step, len(state.positions), report.written) == (True, _PARTITIONS, written), state.reasons


def test_all_offsets_of_a_group_with_5_000_partitions_are_exact(
    pair: TwoClusters, unique: Callable[[str], str]
) -> None:
    topic, group = unique("t"), unique("g.billing")
    for end in (pair.source, pair.target):
        _create(end, topic)
    pair.own_topics()
    earlier = {partition: partition % 3 for partition in range(_PARTITIONS)}
    _fill(pair.target, topic, earlier)
    _fill(pair.source, topic, dict.fromkeys(range(_PARTITIONS), _RECORDS))
    ranges = pair.ranges(topic)
    for portion in _portions():
        pair.complete(ranges[portion.start : portion.stop], start_over=True)
    offsets = {partition: partition % (_RECORDS + 1) for partition in range(_PARTITIONS)}
    _commit(pair.source, group, topic, offsets)
    with group_sync(pair, topic) as sync:
        _assert_in_step(sync.round(), group, _PARTITIONS)
        logs = [[offset for offset, _ in log] for log in pair.target.logs(topic, _PARTITIONS)]
        copies = [[*log[earlier[number] :], log[-1] + 1] for number, log in enumerate(logs)]
        expected = {number: (copies[number][offset], f"at {number}") for number, offset in offsets.items()}
        assert _committed(pair.target, group, topic) == expected
        moved = {number: _RECORDS for number in range(0, _PARTITIONS, _PARTITIONS // _MOVED) if offsets[number] == 0}
        assert len(moved) == _MOVED
        _commit(pair.source, group, topic, moved)
        _assert_in_step(sync.round(), group, _MOVED)
    expected |= {number: (copies[number][_RECORDS], f"at {number}") for number in moved}
    assert _committed(pair.target, group, topic) == expected
