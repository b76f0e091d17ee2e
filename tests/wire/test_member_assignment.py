"""Assignments of classic groups, against kio's own writer."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.consumer_protocol_assignment import v0, v3
from kio.serial import entity_writer

from mirror.errors import ProtocolError
from mirror.wire.member_assignment import read_assignment

_TOPICS = st.dictionaries(st.text(max_size=12), st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple), max_size=4)


def _written(module: Any, version: int, topics: dict[str, tuple[int, ...]]) -> bytes:
    data = module.data
    parts = tuple(data.TopicPartition(topic=name, partitions=numbers) for name, numbers in topics.items())
    out = io.BytesIO()
    entity = data.ConsumerProtocolAssignment(assigned_partitions=parts, user_data=b"of the assignor")
    entity_writer(data.ConsumerProtocolAssignment)(out, entity)
    return struct.pack(">h", version) + out.getvalue()


@pytest.mark.parametrize(("module", "version"), [(v0, 0), (v3, 3)])
@given(topics=_TOPICS)
def test_what_a_leader_wrote_is_read(module: Any, version: int, topics: dict[str, tuple[int, ...]]) -> None:
    assert read_assignment(_written(module, version, topics)) == topics


def test_no_bytes_are_no_assignment() -> None:
    assert read_assignment(b"") == {}


@given(data=st.binary(min_size=1, max_size=60))
def test_any_other_bytes_are_an_error_or_an_assignment(data: bytes) -> None:
    try:
        found = read_assignment(data)
    except ProtocolError:
        return
    assert all(isinstance(topic, str) for topic in found)


def test_lengths_that_lie_cost_nothing() -> None:
    topic = struct.pack(">hii", 0, 1, 0)[:-4] + struct.pack(">h1si", 1, b"t", 2**31 - 1)
    for lie in (struct.pack(">hi", 0, 2**31 - 1), topic, struct.pack(">hih", 0, 1, -5), b"\0"):
        with pytest.raises(ProtocolError, match="does not follow the consumer protocol"):
            read_assignment(lie)
