"""Bytes from an enemy: a ProtocolError each time, never another exception, never much memory."""

from __future__ import annotations

import contextlib
import io
import struct
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer

from mirror.errors import ProtocolError
from mirror.wire import codec
from mirror.wire.api import Api
from mirror.wire.records import split_batches
from tests.fakes.record_batches import build
from tests.wire.strategies import IDS, VERSIONS, entities, response_schema

_LIES = (b"\xff\xff\xff\xff\x07", b"\xfe\xff\xff\xff\x0f", b"\xff" * 10, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0")
_MORE = 3 if settings.get_current_profile_name() == "explore" else 1


def _valid(data: st.DataObject, api: Api, version: int) -> bytes:
    schema = response_schema(api, version)
    out = io.BytesIO()
    entity_writer(schema)(out, data.draw(entities(schema, api.value.response)))
    header = struct.pack(">i", 1) + (b"\0" if schema.__header_schema__.__flexible__ else b"")  # type: ignore[attr-defined]
    return header + out.getvalue()


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=IDS)
@settings(max_examples=4 * _MORE, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_damaged_answer_is_read_or_refused_in_one_way(api: Api, version: int, data: st.DataObject) -> None:
    frame = bytearray(_valid(data, api, version))
    for _ in range(data.draw(st.integers(1, 4), label="damages")):
        at = data.draw(st.integers(0, max(0, len(frame) - 1)), label="at")
        kind = data.draw(st.sampled_from(["byte", "cut", "lie", "insert"]), label="kind")
        if kind == "byte" and frame:
            frame[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del frame[at:]
        elif kind == "lie":
            frame[at : at + 1] = data.draw(st.sampled_from(_LIES))
        else:
            frame[at:at] = data.draw(st.binary(max_size=8))
    with contextlib.suppress(ProtocolError):
        codec.decode_response(api, version, frame)


@settings(max_examples=50 * _MORE)
@given(st.sampled_from(VERSIONS), st.binary(max_size=300))
def test_random_bytes_are_read_or_refused_in_one_way(spec: tuple[Api, int], junk: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        codec.decode_response(spec[0], spec[1], bytearray(junk))


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=IDS)
@settings(max_examples=_MORE)
@given(data=st.data())
def test_every_truncation_of_an_answer_is_refused(api: Api, version: int, data: st.DataObject) -> None:
    whole = _valid(data, api, version)
    for size in range(4, len(whole)):
        with pytest.raises(ProtocolError, match=rf"a {api.label} response \(version {version}, {size} bytes\)"):
            codec.decode_response(api, version, bytearray(whole[:size]))


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=IDS)
@pytest.mark.parametrize("lie", [b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f"], ids=["2**31 - 2", "2**32 - 2"])
def test_a_lying_count_costs_no_memory(api: Api, version: int, lie: bytes) -> None:
    """Every place where a length may stand gets a huge one; the decoder must look before it believes.

    kio's own array readers do not, and end the whole process with the larger of the two.
    """
    flexible = response_schema(api, version).__header_schema__.__flexible__  # type: ignore[attr-defined]
    header = b"\0\0\0\1" + (b"\0" if flexible else b"")
    tracemalloc.start()
    try:
        for before in range(40):
            for filler in (b"\0", b"\2"):
                with contextlib.suppress(ProtocolError):
                    codec.decode_response(api, version, bytearray(header + filler * before + lie + bytes(30)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_a_short_frame_has_no_correlation_id() -> None:
    for size in range(4):
        with pytest.raises(ProtocolError, match="too short"):
            codec.read_correlation_id(bytearray(size))
    with pytest.raises(ProtocolError, match="ends before"):
        codec.peek_int16(bytearray(5), 4)


@settings(max_examples=50 * _MORE)
@given(st.data())
def test_damaged_records_are_split_or_refused_in_one_way(data: st.DataObject) -> None:
    records = bytearray(build((b"one", b"two")) + build((b"three",), base_offset=2))
    for _ in range(data.draw(st.integers(1, 5))):
        records[data.draw(st.integers(0, len(records) - 1))] = data.draw(st.integers(0, 255))
    del records[data.draw(st.integers(0, len(records))) :]
    with contextlib.suppress(ProtocolError):
        for batch in split_batches(memoryview(records)):
            batch.verify()
