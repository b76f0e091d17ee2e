"""Our codec against kio's own: what one writes the other reads, for every API and version."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer

from mirror.errors import ProtocolError
from mirror.wire import codec
from mirror.wire.api import Api
from mirror.wire.messages.base import Records
from mirror.wire.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from mirror.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from tests.fakes.server_codec import decode_request, encode_response, to_message
from tests.wire.strategies import IDS, VERSIONS, entities, request_schema, response_schema

_EVERY_VERSION = pytest.mark.parametrize(("api", "version"), VERSIONS, ids=IDS)


@_EVERY_VERSION
@settings(max_examples=6)
@given(data=st.data())
def test_a_broker_reads_the_request_that_was_meant(api: Api, version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(request_schema(api, version), api.value.request))
    meant = to_message(api.value.request, entity)
    segments = codec.encode_request(api, version, 77, "client", meant)
    frame = b"".join(bytes(segment) for segment in segments)
    (size,) = struct.unpack_from(">i", frame)
    assert size == len(frame) - 4
    assert _comparable(decode_request(frame[4:])) == _comparable((api, version, 77, meant))


@_EVERY_VERSION
@settings(max_examples=6)
@given(data=st.data())
def test_the_response_that_a_broker_meant_is_read(api: Api, version: int, data: st.DataObject) -> None:
    schema = response_schema(api, version)
    entity = data.draw(entities(schema, api.value.response))
    out = io.BytesIO()
    entity_writer(schema)(out, entity)
    header = struct.pack(">i", 9) + (b"\0" if schema.__header_schema__.__flexible__ else b"")  # type: ignore[attr-defined]
    frame = bytearray(header + out.getvalue())
    assert codec.read_correlation_id(frame) == 9
    assert codec.decode_response(api, version, frame) == to_message(api.value.response, entity)


def _comparable(request: tuple[Api, int, int, Any]) -> tuple[Api, int, int, str]:
    """Records as one piece, however they were cut into segments."""
    api, version, correlation_id, body = request
    if isinstance(body, ProduceRequest):
        for topic in body.topic_data:
            for part in topic.partition_data:
                part.records = Records.of((b"".join(bytes(s) for s in part.records.segments),))
    return api, version, correlation_id, repr(body)


def _fetch_frame(records: bytes, version: int = 16) -> bytearray:
    part = FetchResponsePartition(0, 0, records=memoryview(records))
    body = FetchResponse(responses=(FetchResponseTopic(None, "t", (part,)),))
    return bytearray(encode_response(Api.FETCH, version, 1, body)[4:])


@pytest.mark.parametrize("version", range(12, 19))
def test_records_are_a_view_into_the_frame(version: int) -> None:
    frame = _fetch_frame(b"0123456789", version)
    body = codec.decode_response(Api.FETCH, version, frame)
    records = body.responses[0].partitions[0].records
    at = frame.index(b"0123456789")
    assert records.obj is frame
    records[3:6] = b"xyz"
    assert frame[at : at + 10] == b"012xyz6789"


def test_produced_records_pass_as_the_segments_they_are() -> None:
    first, second = bytearray(b"first batch"), memoryview(bytearray(b"another"))
    topic = ProduceTopic("t", None, (ProducePartition(0, Records.of((first, second))),))
    segments = codec.encode_request(Api.PRODUCE, 12, 1, "c", ProduceRequest(-1, 30_000, (topic,)))
    assert sum(segment is first for segment in segments) == 1
    assert sum(segment is second for segment in segments) == 1


def test_an_error_code_newer_than_kio_is_read_as_its_number() -> None:
    body = FetchResponse(responses=(FetchResponseTopic(None, "t", (FetchResponsePartition(0, 9_999),)),))
    frame = bytearray(encode_response(Api.FETCH, 16, 1, body)[4:])
    assert codec.decode_response(Api.FETCH, 16, frame).responses[0].partitions[0].error_code == 9_999


def test_unknown_tagged_fields_are_passed_over() -> None:
    body = FetchResponse(throttle_time=5)
    frame = bytearray(encode_response(Api.FETCH, 16, 1, body)[4:])
    assert frame[-1] == 0, "no tags at the end yet"
    frame[-1:] = b"\x01\x63\x03abc"  # one tag: 99, three bytes
    assert codec.decode_response(Api.FETCH, 16, frame) == codec.decode_response(
        Api.FETCH, 16, bytearray(encode_response(Api.FETCH, 16, 1, body)[4:])
    )


def test_null_in_the_place_of_a_list_is_refused_where_it_cannot_be() -> None:
    """Code that walks the list would fail, and the network thread with it."""
    fetched = struct.pack(">i", 7) + b"\0" + struct.pack(">ihi", 0, 0, 0) + b"\0" + b"\0"
    with pytest.raises(ProtocolError, match=r"a Fetch response .* null at byte \d+, where a list is required"):
        codec.decode_response(Api.FETCH, 12, bytearray(fetched))
