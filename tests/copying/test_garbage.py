"""What the copies of a task leave for the garbage collector, which stops all threads of the process."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from mirror.client import Producer
from tests.copying.pair import TwoClusters

pytestmark = pytest.mark.brokers

FEW, MANY = 5, 45
MOST_OBJECTS = 80
"""For each partition; a copy and its clients have 420."""

_WAYS: dict[str, dict[str, Any]] = {
    "sequences": {"exactly_once_by": "sequences"},
    "transactions": {"exactly_once_by": "transactions"},
    "at least once": {"exactly_once": False},
}


def _left_by_a_task(pair: TwoClusters, partitions: int, **policy: Any) -> int:
    """Copy a record of each partition, and return how many unreachable objects the task leaves."""
    topic = pair.topics(partitions)
    with Producer({"bootstrap.servers": pair.source.address}) as producer:
        for partition in range(partitions):
            producer.send(topic, partition, value=b"a record")
    gc.collect()
    pair.complete(topic, **policy)
    return gc.collect()


@pytest.mark.parametrize(
    "way", ["sequences", *(pytest.param(way, marks=pytest.mark.cluster) for way in list(_WAYS)[1:])]
)
def test_copies_are_freed_without_a_collection(pair: TwoClusters, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr("mirror.relay.task.copy_ranges.collect_ended_tasks", lambda: None)
    gc.disable()
    try:
        few = _left_by_a_task(pair, FEW, **_WAYS[way])
        # What a copy leaves, each task leaves; what other threads of the process have left meanwhile (104), one does.
        many = min(_left_by_a_task(pair, MANY, **_WAYS[way]) for _ in range(2))
    finally:
        gc.enable()
    assert (many - few) / (MANY - FEW) < MOST_OBJECTS, (few, many)
