"""What is compared without Spark."""

from __future__ import annotations

import pytest

from mirror.client import TopicPartition
from mirror.spark.driver.verify_flow import _is_short
from mirror.spark.planning.log_sizes import RecordSizes
from mirror.spark.verification.planning import VerifyPlan
from mirror.verify.partition_results import VerifyRange
from mirror.verify.values import Bounds


@pytest.mark.parametrize(
    ("offsets", "size_of_one", "is_short"),
    [(100_000, 1.0, True), (100_001, 1.0, False), (1_000, 50_000.0, False), (0, 1.0, True)],
)
def test_a_tail_is_short_by_its_offsets_too_however_well_it_is_compressed(
    offsets: int, size_of_one: float, is_short: bool
) -> None:
    bounds = Bounds(source_start=7, source_end=7 + offsets, target_start=0, target_end=offsets)
    ranges = [VerifyRange(topic="t", target_topic="t", partition=number, bounds=bounds) for number in (0, 1)]
    sizes = RecordSizes({TopicPartition("t", number): size_of_one for number in (0, 1)})
    plan = VerifyPlan(flow="f", source_cluster_id="a", target_cluster_id="b", ranges=ranges, sizes=sizes)
    assert _is_short(plan) is is_short
