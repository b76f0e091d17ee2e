"""The control offsets of an Iceberg sink in the snapshots of a table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mirror.errors import FlowError
from mirror.positions.iceberg import SinkOffsets, parse_snapshot, property_of
from mirror.positions.places import SourcePosition
from mirror.relay.offsets.index import Place
from tests.positions.golden import moved

NAME = "kafka.connect.offsets.control-iceberg.connect-orders"
OFFSETS = '{"0":42}'
SINK = SinkOffsets("control-iceberg", "connect-orders", (SourcePosition("control-iceberg", 0, 42),))


def _snapshot(number: int, parent: int | None, **summary: str) -> dict[str, Any]:
    return {"snapshot-id": number, "parent-snapshot-id": parent, "summary": {"operation": "append", **summary}}


def _metadata(*snapshots: dict[str, Any], current: int = 3) -> str:
    return json.dumps({"format-version": 2, "current-snapshot-id": current, "snapshots": snapshots})


def test_the_newest_snapshot_of_the_ancestry_counts() -> None:
    text = _metadata(
        _snapshot(1, None, **{NAME: '{"0":7}'}),
        _snapshot(2, 1, **{NAME: OFFSETS}),
        _snapshot(3, 2),  # compaction, which says nothing of the sink
        _snapshot(4, 2, **{NAME: '{"0":99}'}),  # of another branch
    )
    assert parse_snapshot(text, "t", None) == [SINK]


def test_a_summary_is_read_and_each_sink_is_its_own() -> None:
    other = "kafka.connect.offsets.control.b.cg-control-x"
    found = parse_snapshot(json.dumps({NAME: OFFSETS, other: '{"1":5}', "total-records": "8"}), "t", None)
    assert found == [SINK, SinkOffsets("control.b", "cg-control-x", (SourcePosition("control.b", 1, 5),))]


def test_a_group_of_its_own_name_needs_the_control_topic() -> None:
    text = json.dumps({"kafka.connect.offsets.control-iceberg.my.group": OFFSETS})
    with pytest.raises(FlowError, match="give --control-topic"):
        parse_snapshot(text, "t", None)
    (found,) = parse_snapshot(text, "t", "control-iceberg")
    assert (found.topic, found.group) == ("control-iceberg", "my.group")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "t is no JSON, or truncated"),
        ("[]", "t is neither the metadata"),
        ("{}", "t has no property kafka.connect.offsets.CONTROL-TOPIC.GROUP"),
        (_metadata(_snapshot(3, None)), "t has no property"),
        (json.dumps({"current-snapshot-id": 1, "snapshots": [5]}), "t is no metadata of a table"),
        (json.dumps({NAME: "x"}), "is no JSON of partitions and offsets"),
        (json.dumps({NAME: '{"x":1}'}), "is no JSON of partitions and offsets"),
        (json.dumps({NAME: "[1]"}), "is no JSON of partitions and offsets"),
        (json.dumps({NAME: '{"0":-1}'}), "has something else than offsets"),
    ],
)
def test_a_file_that_says_nothing_of_a_sink_is_refused(text: str, words: str) -> None:
    with pytest.raises(FlowError) as caught:
        parse_snapshot(text, "t", None)
    assert words in str(caught.value)


def test_the_property_has_the_copied_topic_and_its_offsets() -> None:
    found = moved(SINK.positions)
    name = "kafka.connect.offsets.a.control-iceberg.connect-orders"
    assert property_of(SINK, "a.control-iceberg", found) == (name, '{"0":142}')
    late = {one: there._replace(place=Place.NOT_COPIED) for one, there in found.items()}
    with pytest.raises(FlowError, match="not copied yet"):
        property_of(SINK, "a.control-iceberg", late)
