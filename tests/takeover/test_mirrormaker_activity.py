"""What shows that MirrorMaker 2 still runs."""

from __future__ import annotations

import pytest

from mirror.cluster.types import TopicPartition
from mirror.takeover.mirrormaker_activity import ActivitySample, signs_of_life
from mirror.takeover.places import Places

POSITIONS, TARGET = TopicPartition("mm2-offsets.a.internal", 3), TopicPartition("a.t", 0)
PLACES = Places("MirrorSourceConnector", POSITIONS.topic, "mm2-status.a.internal", "a-mm2", True, True)
BEFORE = ActivitySample({POSITIONS: 7}, {TARGET: 9}, 0)


@pytest.mark.parametrize(
    ("after", "signs"),
    [
        (BEFORE, []),
        (BEFORE._replace(workers=2), ["2 of its workers are members of group a-mm2"]),
        (BEFORE._replace(positions={POSITIONS: 8}), [f"something has stored positions meanwhile: {POSITIONS}"]),
        (BEFORE._replace(targets={TARGET: 10}), [f"something has written to the target meanwhile: {TARGET}"]),
    ],
)
def test_each_sign_is_a_line(after: ActivitySample, signs: list[str]) -> None:
    assert signs_of_life(BEFORE, after, PLACES) == signs


def test_a_log_that_was_not_seen_before_or_is_not_now_is_no_sign() -> None:
    assert not signs_of_life(BEFORE._replace(targets={}), BEFORE, PLACES)
    assert not signs_of_life(BEFORE, BEFORE._replace(targets={}), PLACES)


def test_many_logs_are_not_all_named() -> None:
    targets = {TopicPartition("a.t", number): 1 for number in range(5)}
    (line,) = signs_of_life(
        BEFORE._replace(targets=dict.fromkeys(targets, 0)), BEFORE._replace(targets=targets), PLACES
    )
    assert line.endswith("a.t-0, a.t-1, a.t-2, ...")
