"""Positions have the bytes that MirrorMaker 2 4.3.0 has written (the examples are from its topics)."""

from __future__ import annotations

import pytest

from mirror.client import TopicPartition
from mirror.errors import InvalidArgument
from mirror.mirrormaker.source_offsets import SourceOffsetKey, encode_offset, parse_offset, partition_of

KEY = SourceOffsetKey("MirrorSourceConnector", "east", TopicPartition("orders", 3))
KEY_BYTES = bytes.fromhex(
    "5b224d6972726f72536f75726365436f6e6e6563746f72222c7b22636c7573746572223a2265617374222c"
    "22706172746974696f6e223a332c22746f706963223a226f7264657273227d5d"
)
VALUE_BYTES = bytes.fromhex("7b226f6666736574223a313233343536377d")


def test_the_bytes_are_mirrormaker_s() -> None:
    assert KEY.to_bytes() == KEY_BYTES
    assert encode_offset(1234567) == VALUE_BYTES
    assert SourceOffsetKey.parse(KEY_BYTES) == KEY
    assert parse_offset(VALUE_BYTES) == 1234567


@pytest.mark.parametrize(
    ("connector", "written"),
    [
        ("east->west.MirrorSourceConnector", b'"east->west.MirrorSourceConnector"'),
        ('a "b" \\ /', b'"a \\"b\\" \\\\ /"'),
        ("é\uffff\U0001f600", '"é\uffff\\uD83D\\uDE00"'.encode()),
        ("\x00\x08\t\n\x0b\x0c\r\x1f\x7f", b'"\\u0000\\b\\t\\n\\u000B\\f\\r\\u001F\x7f"'),
    ],
)
def test_names_are_escaped_as_java_does(connector: str, written: bytes) -> None:
    key = KEY._replace(connector=connector)
    assert key.to_bytes() == b"[" + written + b',{"cluster":"east","partition":3,"topic":"orders"}]'
    assert SourceOffsetKey.parse(key.to_bytes()) == key


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"\xff",
        b"[" * 5000,
        b"{}",
        b'["MirrorSourceConnector"]',
        b'["MirrorSourceConnector",[]]',
        b'[1,{"cluster":"east","partition":3,"topic":"orders"}]',
        b'["MirrorSourceConnector",{"cluster":"east","partition":-1,"topic":"orders"}]',
        b'["MirrorSourceConnector",{"cluster":"east","partition":true,"topic":"orders"}]',
        b'["MirrorCheckpointConnector",{"partition":1,"topic":"east.orders","group":"billing"}]',
        b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"east","targetClusterAlias":"west"}]',
    ],
)
def test_other_keys_are_no_positions(data: bytes | None) -> None:
    assert SourceOffsetKey.parse(data) is None


@pytest.mark.parametrize("data", [None, b"", b"\xff", b"[]", b"{}", b'{"offset":"7"}', b'{"offset":-1}'])
def test_other_values_say_no_offset(data: bytes | None) -> None:
    assert parse_offset(data) is None


def test_names_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidArgument):
        KEY._replace(cluster="\ud800").to_bytes()


@pytest.mark.parametrize(("partition", "found"), [(0, 13), (1, 13), (3, 11)])
def test_a_key_is_in_the_partition_where_connect_s_producer_writes_it(partition: int, found: int) -> None:
    key = KEY._replace(tp=TopicPartition("orders", partition))
    assert partition_of(key.to_bytes()) == found
