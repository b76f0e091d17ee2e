"""The translated position of a row, whatever is decided about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mirror.client import OffsetAndMetadata, TopicPartition
from mirror.groups.commit_decision import ANY_SOURCE, Intent, Observed, Position
from mirror.groups.group_partition import GroupPartition, translated_position
from mirror.groups.positions import TranslatedPosition
from mirror.relay.offsets.index import UNKNOWN, Place, Translation

SOURCE, TARGET = TopicPartition("t", 0), TopicPartition("a.t", 0)
COMMITTED = OffsetAndMetadata(137, 3, "m")
SEEN = Observed(source=137, target=None, translation=Translation(Place.RECORD, 111))
ROW = GroupPartition("g", SOURCE, TARGET, COMMITTED, None, seen=SEEN)

_WITHDRAWN: list[dict[str, Any]] = [
    {"target": 111, "standing": 90, "intent": Intent(120, 100, ANY_SOURCE, 111)},
    {"target": 111, "standing": 90, "resumed": 111},
]
"""The source offset of the target's is not known."""


@pytest.mark.parametrize(
    ("seen", "position", "lost"),
    [
        (SEEN, Position(137, 111), False),
        (replace(SEEN, target=111, active=True), Position(137, 111), False),
        (replace(SEEN, translation=Translation(Place.NOT_COPIED, 90), copied_to=100), Position(100, 90), False),
        (replace(SEEN, target=111, standing=90), Position(137, 111), True),
        *((replace(SEEN, translation=UNKNOWN, **of), Position(137, 90), True) for of in _WITHDRAWN),
    ],
)
def test_a_position_is_known_whether_or_not_it_is_committed(seen: Observed, position: Position, lost: bool) -> None:
    found = translated_position(replace(ROW, seen=seen))
    assert found == TranslatedPosition("g", TARGET, position, "m", lost)


@pytest.mark.parametrize(
    "row",
    [replace(ROW, seen=None), replace(ROW, committed=None), replace(ROW, seen=replace(SEEN, translation=UNKNOWN))],
)
def test_without_an_offset_or_its_translation_there_is_no_position(row: GroupPartition) -> None:
    assert translated_position(row) is None
