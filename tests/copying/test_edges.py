"""A stream's partitions between two epochs, on real brokers: what comes there is copied at once, and in order."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import Any

import pytest

from mirror.relay.model.ranges import OPEN_END, RangeResult
from mirror.relay.task.neighbours import remove_folder
from tests.copying.pair import TwoClusters
from tests.polling import eventually

pytestmark = pytest.mark.brokers

EPOCH_MS = 2_000
LEASE_MS = 40_000
PARTITIONS = 2
RECORDS = 10
"""In each partition and epoch, and as many between two epochs."""


class Stream:
    """The epochs of a stream in this process."""

    def __init__(self, pair: TwoClusters, **policy: Any) -> None:
        self.pair = pair
        self.topic = pair.topics(PARTITIONS)
        self.policy = {"run": f"run-{uuid.uuid4()}", **policy}
        self.written = 0

    def write(self) -> None:
        values = [b"%d" % (self.written + number) for number in range(RECORDS)]
        for partition in range(PARTITIONS):
            self.pair.source.fill(self.topic, values, partition, first_ms=now_ms())
        self.written += RECORDS

    def epoch(self, lease_ms: int = LEASE_MS) -> list[RangeResult]:
        """Copy what there is, and what comes until the epoch ends."""
        ranges = [replace(planned, end=OPEN_END) for planned in self.pair.ranges(self.topic)]
        return self.pair.complete(ranges, until_ms=now_ms() + EPOCH_MS, lease_ms=lease_ms, **self.policy)

    def copied(self) -> None:
        def all_there() -> bool:
            logs = self.pair.target.logs(self.topic, PARTITIONS)
            return all(len(log) >= self.written for log in logs)

        eventually(all_there, within_s=20, what=f"{self.written} records in each partition")


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.mark.parametrize("policy", [{"exactly_once": False}, {"exactly_once_by": "sequences"}], ids=str)
def test_records_between_two_epochs_are_copied_and_counted_once(pair: TwoClusters, policy: dict[str, Any]) -> None:
    stream = Stream(pair, **policy)
    results: list[RangeResult] = []
    for _ in range(2):
        stream.write()
        results += stream.epoch()
        stream.write()
        stream.copied()  # no epoch runs now
    results += stream.epoch(lease_ms=0)
    remove_folder(stream.policy["run"])
    pair.equal(stream.topic, PARTITIONS)
    assert sum(result.records for result in results) == PARTITIONS * stream.written
