"""What a verification proves at the fenced ends."""

from __future__ import annotations

from typing import Any

import pytest

from mirror.switch.proving import flow_of, unproved
from mirror.verify.values import PROVED_BEFORE


def partition(**changed: Any) -> dict[str, Any]:
    """A partition of a verification that has compared up to offset 9."""
    found = {"topic": "t", "partition": 0, "error": None, "incomplete": [], "source": {"start": 4, "equal_to": 9}}
    return found | changed


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ([partition()], []),
        ([partition(incomplete=[f"source 0 to 3 not compared: {PROVED_BEFORE}"])], []),
        ([partition(incomplete=["1 missing"])], ["t-0: 1 missing"]),
        ([partition(error="away")], ["t-0: away"]),
        ([partition(source={"start": 4, "equal_to": 8})], ["t-0: equal up to offset 8 of 9"]),
        ([], ["t-0: it was not compared"]),
        ([{"topic": "t", "partition": 0, "error": None, "incomplete": []}], ["t-0: equal up to offset 0 of 9"]),
    ],
)
def test_what_is_not_compared_up_to_the_fenced_end_is_not_proved(
    partitions: list[dict[str, Any]], expected: list[str]
) -> None:
    assert [*unproved(partitions, {"t": (9, 0)})] == expected


@pytest.mark.parametrize("output", ["", '{"flows": [{"err', "{}", '{"flows": []}', '{"flows": ["f"]}', "[1]"])
def test_the_output_of_a_verification_that_was_killed_says_nothing(output: str) -> None:
    assert flow_of(output) is None
    assert flow_of('{"flows": [{"error": null}]}') == {"error": None}
