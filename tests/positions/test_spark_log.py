"""The files of a Spark checkpoint that have positions: as Spark 4.3 writes them, and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.errors import FlowError
from mirror.positions.places import SourcePosition
from mirror.positions.spark_log import encode_initial, kafka_positions, parse_initial, parse_offsets, to_json
from tests.positions.golden import PLANNED, TWO, V2

ORDERS = '{"orders":{"0":7,"1":7}}'


@pytest.mark.parametrize(
    ("file", "version", "sources"),
    [
        (TWO / "offsets/1", 1, (("0", ORDERS), ("1", '{"clicks":{"0":14}}'))),
        (V2 / "offsets/0", 2, (("1", '{"clicks":{"0":18}}'), ("0", '{"orders":{"0":9,"1":9}}'))),
        (PLANNED / "offsets/0", 2, (("0", '{"orders":{"0":9,"1":9}}'),)),
    ],
)
def test_offsets_of_spark_are_read_and_written_as_they_were(
    file: Path, version: int, sources: tuple[tuple[str, str], ...]
) -> None:
    content = file.read_bytes()
    found = parse_offsets(content, "offsets/1")
    assert (found.version, found.sources) == (version, sources)
    assert found.encoded({}) == content


def test_only_the_offsets_of_named_sources_change() -> None:
    found = parse_offsets((V2 / "offsets/0").read_bytes(), "offsets/0")
    lines = found.encoded({"1": "{}"}).decode().splitlines()
    assert (lines[0], lines[1], lines[2:]) == ("v2", found.metadata, ["1:{}", '0:{"orders":{"0":9,"1":9}}'])


def test_a_position_is_that_of_its_topic_and_partition() -> None:
    found = kafka_positions(ORDERS, "offsets/1")
    assert found == (SourcePosition("orders", 0, 7), SourcePosition("orders", 1, 7))
    assert to_json(found) == ORDERS


def test_where_a_source_begins_is_read_and_written_as_it_was() -> None:
    content = (TWO / "sources/0/0").read_bytes()
    found = parse_initial(content, "sources/0/0")
    assert found == (SourcePosition("orders", 0, 0), SourcePosition("orders", 1, 0))
    assert encode_initial(to_json(found)) == content


@pytest.mark.parametrize("text", ['{"logOffset":5}', "17", '{"orders":5}', '{"orders":{"shard-0":"7"}}', '"x"', "[1]"])
def test_offsets_of_other_sources_are_not_kafkas(text: str) -> None:
    assert kafka_positions(text, "offsets/1") is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "offsets/7 is truncated: it is empty"),
        (b"v1", "offsets/7 is truncated: it has no offset"),
        (b"v1\n{}", "offsets/7 is truncated: it has no offset"),
        (b'v1\n{"batchWater', "offsets/7 is truncated or damaged"),
        (b"v1\n[]\n-", "its second line is not the metadata"),
        (b"v3\n{}\n-", "offsets/7 begins with 'v3': known are v1 and v2"),
        (b"\xff\xfe", "offsets/7 is damaged: it is no text"),
        (b"v2\n{}\n-", "begins with the name of a source and a colon"),
    ],
)
def test_an_offsets_file_that_is_damaged_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(FlowError) as caught:
        parse_offsets(content, "offsets/7")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("offset", ["-1", "true", "7.5", '"7"', "null", "9223372036854775808"])
def test_a_position_that_is_no_offset_is_refused(offset: str) -> None:
    with pytest.raises(FlowError, match="orders-0 has no offset"):
        kafka_positions(f'{{"orders":{{"0":{offset}}}}}', "offsets/7")


@pytest.mark.parametrize("content", [b'v1\n{"orders":{"0":0}}', b"\0v2\n{}", b'\0v1\n{"logOffset":5}', b'\0v1\n{"ord'])
def test_a_beginning_that_is_damaged_is_refused(content: bytes) -> None:
    with pytest.raises(FlowError, match="sources/0/0"):
        parse_initial(content, "sources/0/0")
