"""A Produce response decoded as plain structs equals the one decoded by the schema; others are left to the schema."""

from __future__ import annotations

import uuid
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.errors import ProtocolError
from mirror.wire import codec
from mirror.wire.api import Api
from mirror.wire.messages.produce import (
    ProducedLeader,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
    RecordError,
)
from mirror.wire.produce_frames import decode_plain_response
from tests.fakes.server_codec import encode_response

_VERSIONS: Final = range(9, Api.PRODUCE.spec.high + 1)
"""The flexible ones."""
_EVERY_VERSION = pytest.mark.parametrize("version", _VERSIONS)
_UUID: Final = uuid.UUID(int=2**100 + 7)


def _frame(version: int, response: ProduceResponse) -> bytearray:
    return bytearray(encode_response(Api.PRODUCE, version, 7, response)[4:])


def _by_schema(version: int, frame: bytearray) -> Any:
    """What the schema alone makes of ``frame``; ProtocolError where nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "decode_plain_response", lambda *_: None)
        try:
            return codec.decode_response(Api.PRODUCE, version, frame)
        except ProtocolError as error:
            return type(error)


def _response(name: str = "topic", **about: Any) -> ProduceResponse:
    part = ProduceResponsePartition(
        **{"index": 3, "error_code": 0, "base_offset": 2**40, "log_append_time": -1, **about}
    )
    return ProduceResponse((ProduceResponseTopic(name, _UUID, (part,)),), 25)


_PARTITIONS: Final = st.builds(
    ProduceResponsePartition,
    index=st.integers(0, 2**31 - 1),
    error_code=st.sampled_from([0, 6, 45, 87]),
    base_offset=st.integers(-1, 2**63 - 1),
    log_append_time=st.integers(-1, 2**42),
    log_start_offset=st.integers(-1, 2**63 - 1),
)


@st.composite
def _responses(draw: st.DrawFn) -> ProduceResponse:
    names = st.one_of(st.text(max_size=12), st.sampled_from(["n" * size for size in (125, 126, 127, 249)]))
    parts = st.lists(_PARTITIONS, min_size=1, max_size=3).map(tuple)
    topics = st.lists(st.builds(ProduceResponseTopic, names, st.just(_UUID), parts), min_size=1, max_size=3)
    return ProduceResponse(tuple(draw(topics)), draw(st.integers(0, 2**31 - 1)))


@_EVERY_VERSION
@given(response=_responses())
def test_an_ordinary_answer_is_read_as_the_schema_reads_it(version: int, response: ProduceResponse) -> None:
    frame = _frame(version, response)
    read = decode_plain_response(version, frame)
    assert codec.decode_response(Api.PRODUCE, version, frame) == _by_schema(version, frame)
    lengths = [len(topic.name.encode()) for topic in response.responses]
    assert (read is not None) == (version >= 13 or all(0 < length < 127 for length in lengths)), "nearly all are"


@_EVERY_VERSION
@given(
    response=_responses(),
    changes=st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 3),
    more=st.binary(max_size=3),
)
def test_a_damaged_answer_is_read_as_the_schema_reads_it_or_not_at_all(
    version: int, response: ProduceResponse, changes: list[tuple[int, int]], cut: int, more: bytes
) -> None:
    frame = _frame(version, response)
    for place, byte in changes:
        frame[place % len(frame)] = byte
    frame = frame[: len(frame) - cut] + more
    expected = _by_schema(version, frame)
    try:
        read = decode_plain_response(version, frame)
    except UnicodeDecodeError:
        assert expected is ProtocolError
    else:
        assert read is None or read == expected


@_EVERY_VERSION
@pytest.mark.parametrize(
    "unusual",
    [
        {"record_errors": (RecordError(1, "bad"),)},
        {"error_message": "no"},
        {"error_message": ""},
        {"current_leader": ProducedLeader(1, 4)},
    ],
    ids=str,
)
def test_what_is_unusual_is_left_to_the_schema(version: int, unusual: dict[str, Any]) -> None:
    if version == _VERSIONS[0] and "current_leader" in unusual:
        return  # in responses from version 10 on
    frame = _frame(version, _response(**unusual))
    assert decode_plain_response(version, frame) is None
    assert codec.decode_response(Api.PRODUCE, version, frame) == _by_schema(version, frame)


@_EVERY_VERSION
@pytest.mark.parametrize("count", [0, 127, 200])
def test_none_or_very_many_are_left_to_the_schema(version: int, count: int) -> None:
    topic = _response().responses[0]
    parts = ProduceResponseTopic(topic.name, topic.topic_id, topic.partition_responses * count)
    for several in (ProduceResponse((parts,)), ProduceResponse((topic,) * count)):
        frame = _frame(version, several)
        assert decode_plain_response(version, frame) is None
        assert codec.decode_response(Api.PRODUCE, version, frame) == _by_schema(version, frame)


@_EVERY_VERSION
def test_tagged_fields_of_a_topic_are_left_to_the_schema(version: int) -> None:
    frame = _frame(version, _response())
    frame[-6] = 1  # it is followed by the throttle time and the end of the response
    assert decode_plain_response(version, frame) is None
    assert codec.decode_response(Api.PRODUCE, version, frame[:-5] + b"\x63\0" + frame[-5:]) == _response_of(
        frame, version
    )


def _response_of(frame: bytearray, version: int) -> Any:
    """What the schema makes of ``frame`` without tagged fields."""
    return _by_schema(version, frame[:-6] + b"\0" + frame[-5:])


def test_a_name_that_is_no_text_is_refused() -> None:
    frame = _frame(12, _response("name"))
    frame[frame.index(b"name")] = 0xFF
    with pytest.raises(ProtocolError, match="a Produce response"):
        codec.decode_response(Api.PRODUCE, 12, frame)
