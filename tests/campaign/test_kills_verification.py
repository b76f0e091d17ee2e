"""What the campaign of kills accepts of a copy by sequences."""

from __future__ import annotations

import pytest

from tests.campaign.kills.growing_source import Record
from tests.campaign.kills.verification import prefix_difference

RECORDS = [Record(None, b"value", (("serial", b"%d" % n),), n) for n in range(5)]
TRUTH = dict(zip((0, 1, 3, 7, 8), RECORDS, strict=True))  # the other offsets hold no records


@pytest.mark.parametrize("count", [3, 4, 5])
def test_target_may_hold_more_than_the_progress_says(count: int) -> None:
    assert not prefix_difference(TRUTH, 7, RECORDS[:count])


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param([0, 1], id="fewer than the progress says"),
        pytest.param([0, 1, 3], id="one is missing"),
        pytest.param([0, 1, 2, 2], id="one is there twice"),
        pytest.param([0, 1, 3, 2], id="out of order"),
        pytest.param([0, 1, 2, 3, 4, 0], id="more than the source has"),
    ],
)
def test_target_must_hold_the_first_records_of_the_source(numbers: list[int]) -> None:
    assert prefix_difference(TRUTH, 7, [RECORDS[number] for number in numbers])
