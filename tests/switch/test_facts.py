"""What moves behind a fence: a bypass, or what had begun before."""

from __future__ import annotations

import pytest

from mirror.switch.facts import Ends, Watch


def watched(*readings: tuple[int, Ends]) -> Watch:
    """A watch that has seen one partition at these times; the brokers show the fence at 0."""
    watch = Watch()
    for now_ms, ends in readings:
        watch.see({"t": (ends,)}, now_ms, 0)
    return watch


@pytest.mark.parametrize(
    ("readings", "quiet_since_ms", "bypassed"),
    [
        ([(0, Ends(5, 5)), (9_000, Ends(5, 5))], 0, ()),
        ([(0, Ends(5, 5)), (4_000, Ends(6, 6)), (9_000, Ends(6, 6))], 4_000, ()),
        ([(0, Ends(5, 5)), (6_000, Ends(6, 6))], 6_000, ("t-0",)),
        ([(0, Ends(5, 3)), (6_000, Ends(6, 6)), (9_000, Ends(6, 6))], 6_000, ()),
        ([(0, Ends(5, 3)), (9_000, Ends(5, 3))], 9_000, ()),
    ],
    ids=["quiet", "in flight", "bypassed", "a marker", "an open transaction"],
)
def test_a_partition_that_grows_behind_the_fence_is_bypassed(
    readings: list[tuple[int, Ends]], quiet_since_ms: int, bypassed: tuple[str, ...]
) -> None:
    watch = watched(*readings)
    assert (watch.quiet_since_ms, watch.bypassed) == (quiet_since_ms, bypassed)


def test_the_marker_of_a_transaction_in_a_partition_without_a_record_of_it_is_no_bypass() -> None:
    watch = Watch()
    watch.see({"t": (Ends(10, 5),), "u": (Ends(7, 7),)}, 7_000, 0)
    watch.see({"t": (Ends(11, 11),), "u": (Ends(7, 7),)}, 8_000, 0)
    watch.see({"t": (Ends(11, 11),), "u": (Ends(8, 8),)}, 9_000, 0)
    assert (watch.quiet_since_ms, watch.bypassed) == (9_000, ())
    watch.see({"t": (Ends(11, 11),), "u": (Ends(9, 9),)}, 13_001, 0)
    assert watch.bypassed == ("u-0",), "no transaction was open for longer than markers take"
