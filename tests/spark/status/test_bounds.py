"""What a probe allows: durations, and which bounds a flow breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from mirror.spark.status.bounds import Bounds, duration_ms, is_late
from tests.spark.status.test_condition import ALIVE, BETWEEN, DEAD, FAILED, STREAM, status

if TYPE_CHECKING:
    from mirror.client import Admin
    from mirror.spark.status.flow_status import FlowStatus


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500ms", 500), ("60s", 60_000), ("90m", 5_400_000), (" 2h", 7_200_000), ("1d", 86_400_000), ("0s", 0)],
)
def test_a_duration_has_a_unit(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "60", "s", "-1s", "1.5h", "1h30m", "60 s", "9999999999s", "1w"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="a whole number with its unit"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("progress", "young", "late"), [(5, 6, True), (5, 5, False), (5, 4, False), (5, -1, True), (5, None, True)]
)
def test_a_record_behind_the_progress_is_late_if_it_is_older_than_the_bound(
    progress: int, young: int | None, late: bool
) -> None:
    assert is_late(progress, young) is late


HOURLY = Bounds(max_age_ms=5_400_000)


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (status(state=BETWEEN), ""),
        (status(run=ALIVE, state=STREAM), ""),
        (status(state=FAILED), "its last success is 2 h ago, the bound is 1 h 30 min (expired)"),
        (status(), "its last success is not known"),
    ],
)
def test_the_age_of_the_last_success_is_bounded(found: FlowStatus, line: str) -> None:
    assert HOURLY.broken_by(found, cast("Admin", None)) == line


def test_a_stream_that_has_died_breaks_a_short_bound() -> None:
    line = Bounds(max_age_ms=30_000).broken_by(status(run=DEAD, state=STREAM), cast("Admin", None))
    assert line == (
        "its last success is 1 min 1 s ago, the bound is 30.0 s (its driver has died or cannot reach the target)"
    )
