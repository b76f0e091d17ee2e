"""Lists of positions, in the forms that programs read and write."""

from __future__ import annotations

import pytest

from mirror.errors import FlowError
from mirror.positions.lists import Listed, Moved, parse_list, to_csv, to_flink, to_spark
from mirror.positions.places import SourcePosition

MOVED = [Moved("g", "a.orders", 0, 107), Moved("g", "a.orders", 1, 5), Moved("g", "a.clicks", 0, 12)]


# The first is what kafka-consumer-groups 4.3 exports of one group, the second of several.
@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("orders,0,51\n\n", [Listed("", SourcePosition("orders", 0, 51))]),
        ('"g,1",orders,0,51\nh,clicks,2,0\n', [("g,1", ("orders", 0, 51)), ("h", ("clicks", 2, 0))]),
        (' {"orders":{"0":51}}\n', [("", ("orders", 0, 51))]),
    ],
)
def test_a_list_is_read(text: str, listed: list[Listed]) -> None:
    assert parse_list(text, "f") == listed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "f has no positions"),
        ("orders,0,51\norders,1", "line 2 of f is not"),
        ("g,orders,0,51,x", "line 1 of f is not"),
        ("orders,,51", "line 1 of f is not"),
        ("orders,x,51", "line 1 of f has no partition and offset"),
        ("orders,0,-1", "line 1 of f has no partition and offset"),
        ("orders,0,9223372036854775808", "line 1 of f has no partition and offset"),
        ("orders,2147483648,1", "line 1 of f has no partition and offset"),
        ("orders,0,٣", "line 1 of f has no partition and offset"),
        ('"orders,0,1', "line 1 of f is no CSV"),
        ('{"orders":{"0":5', "f is truncated or damaged"),
        ('{"orders":[5]}', "f is JSON, and not of the form"),
    ],
)
def test_a_line_that_is_wrong_is_named(text: str, words: str) -> None:
    with pytest.raises(FlowError) as caught:
        parse_list(text, "f")
    assert words in str(caught.value)


def test_a_list_for_kafkas_tool_is_read_again() -> None:
    positions = [Moved("g,1", "a.orders", 0, 107)]
    assert to_csv(positions) == '"g,1",a.orders,0,107\n'
    assert to_csv([positions[0]._replace(group="")]) == "a.orders,0,107\n"
    assert parse_list(to_csv(positions), "f") == [Listed("g,1", SourcePosition("a.orders", 0, 107))]


def test_a_list_for_spark() -> None:
    assert to_spark(MOVED) == '{"a.orders":{"0":107,"1":5},"a.clicks":{"0":12}}\n'


def test_a_list_for_flink() -> None:
    assert to_flink(MOVED).splitlines() == [
        "// .setStartingOffsets(OffsetsInitializer.offsets(offsets, OffsetResetStrategy.NONE))",
        "Map<TopicPartition, Long> offsets = Map.ofEntries(",
        '    Map.entry(new TopicPartition("a.orders", 0), 107L),',
        '    Map.entry(new TopicPartition("a.orders", 1), 5L),',
        '    Map.entry(new TopicPartition("a.clicks", 0), 12L));',
        "// SQL, table of topic a.orders: 'scan.startup.mode' = 'specific-offsets',",
        "//   'scan.startup.specific-offsets' = 'partition:0,offset:107;partition:1,offset:5'",
        "// SQL, table of topic a.clicks: 'scan.startup.mode' = 'specific-offsets',",
        "//   'scan.startup.specific-offsets' = 'partition:0,offset:12'",
    ]
