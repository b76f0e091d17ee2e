"""What the measurement of a stream makes of the records that came, and of those that did not."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.campaign.measurements.stream import Counters, Watch, latencies, recovery


def watch(sent_at: list[float], numbers: list[int], partitions: int = 2, step: int = 1) -> Watch:
    feeding: Any = SimpleNamespace(partitions=partitions, sent_at=sent_at)
    reading: Any = SimpleNamespace(numbers=numbers, read=range(0, partitions, step))
    return Watch(feeding, reading)


def test_a_record_that_has_not_come_is_late_although_others_of_its_partition_have() -> None:
    now = time.monotonic()
    sent_at = [now - 9, now - 8, now - 7, now - 6]  # of the partitions 0, 1, 0, 1

    assert watch(sent_at, [0, 2]).oldest_s() == pytest.approx(8, abs=1)
    assert watch(sent_at, [0, 1, 2]).oldest_s() == pytest.approx(6, abs=1)
    assert watch(sent_at, [0, 1, 2, 3]).oldest_s() == 0
    assert watch([], []).oldest_s() == 0


def test_a_record_is_looked_for_no_longer_once_a_later_one_of_its_partition_has_come() -> None:
    now = time.monotonic()
    assert watch([now - 9, now - 8, now - 7], [2, 1]).oldest_s() == 0


def test_a_record_of_a_partition_that_is_not_read_is_not_awaited() -> None:
    now = time.monotonic()
    assert watch([now - 9, now - 8, now - 7], [0, 2], step=2).oldest_s() == 0


def test_a_stream_has_caught_up_with_the_last_record_that_was_late() -> None:
    arrivals = [(100.5, 20.0), (107.0, 6_400.0), (107.5, 1_000.0), (108.0, 999.0)]

    assert recovery(arrivals, 100.0) == {"caught_up_s": 7.5, "pause_s": 6.5, "late": 2}
    assert recovery([(100.5, 20.0)], 100.0) == {"caught_up_s": 0.0, "pause_s": 0.5, "late": 0}


def test_the_longest_latency_and_the_longest_pause_are_found() -> None:
    found = latencies([(1.0, 5.0), (1.5, 500.0), (4.0, 7.0)])

    assert (found["longest_ms"], found["pause_ms"], found["records"]) == (500.0, 2_500.0, 3)


def test_a_counter_is_late_since_the_first_record_that_it_lacks() -> None:
    counters = Counters(1)
    counters.samples.extend([(10.0, 0), (20.0, 1), (30.0, 3)])
    arrived = [4.0, 9.0, 19.0]

    assert counters.late_s(arrived, 0.0, 99.0) == 11.0
    assert counters.late_s(arrived, 0.0, 15.0) == 6.0
    assert counters.late_s(arrived, 50.0, 99.0) is None
