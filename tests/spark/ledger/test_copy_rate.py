"""The rate of a flow is that of the fastest run, or part of a stream, of late."""

from __future__ import annotations

import pytest

from mirror.spark.ledger.copy_rate import KEPT_MS, MIN_BYTES, CopyRate, faster_rate
from tests.spark.ledger.test_results import result

MB = 1_000_000


def test_the_time_is_that_of_the_longest_copy() -> None:
    results = [
        result(0, bytes=20 * MB, seconds=4.0),
        result(1, bytes=10 * MB, seconds=2.5),
        result(2, seconds=180.0),  # it copied nothing, and waited
    ]
    found = faster_rate(None, results, 7)
    assert found == CopyRate(30 * MB, 4.0, 7)
    assert found.bytes_per_second == 7.5 * MB


@pytest.mark.parametrize("size", [0, MIN_BYTES - 1])
def test_too_little_says_nothing(size: int) -> None:
    assert faster_rate(None, [result(0, bytes=size, seconds=0.5)], 7) is None
    assert faster_rate(None, [], 7) is None


def test_a_part_that_waits_for_producers_replaces_a_faster_one_only_after_a_week() -> None:
    fast = CopyRate(100 * MB, 10.0, 1_000)
    slow = [result(0, bytes=100 * MB, seconds=180.0)]
    assert faster_rate(fast, slow, 1_000 + KEPT_MS) is None
    assert faster_rate(fast, slow, 1_001 + KEPT_MS) == CopyRate(100 * MB, 180.0, 1_001 + KEPT_MS)
    faster = faster_rate(fast, [result(0, bytes=100 * MB, seconds=9.0)], 1_001)
    assert faster == CopyRate(100 * MB, 9.0, 1_001)
