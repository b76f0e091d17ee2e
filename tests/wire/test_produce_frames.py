"""A Produce request that is put together without the schema is, byte for byte, what the codec makes of it."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.wire import produce_frames
from mirror.wire.api import Api
from mirror.wire.codec import _encode_request, encode_request
from mirror.wire.messages.base import Records
from mirror.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from mirror.wire.produce_frames import ProduceFrames

_VERSIONS = range(9, Api.PRODUCE.value.high + 1)  # the flexible ones
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=200)
_SIZES = st.one_of(st.sampled_from([0, 1, 126, 127, 128, 16_382, 16_383, 2_097_150, 2_097_151]), st.integers(0, 70_000))


@st.composite
def _partitions(draw: st.DrawFn) -> ProducePartition:
    half, size = draw(_SIZES), draw(_SIZES)
    records = Records.of((bytes(half), memoryview(bytearray(size))))
    return ProducePartition(draw(st.integers(0, 2**31 - 1)), records)


@st.composite
def _topics(draw: st.DrawFn) -> ProduceTopic:
    parts = draw(st.lists(_partitions(), max_size=3))
    return ProduceTopic(draw(_TEXT), uuid.UUID(int=draw(st.integers(1, 2**128 - 1))), tuple(parts))


@st.composite
def _requests(draw: st.DrawFn) -> ProduceRequest:
    timeout_ms, topics = draw(st.integers(0, 2**31 - 1)), draw(st.lists(_topics(), max_size=3))
    return ProduceRequest(draw(st.sampled_from([-1, 0, 1])), timeout_ms, tuple(topics), draw(st.none() | _TEXT))


@given(st.lists(_requests(), min_size=1, max_size=3), st.sampled_from(_VERSIONS), st.integers(0, 2**31 - 1), _TEXT)
def test_each_frame_is_what_the_schema_makes_of_it_also_the_second_time(
    requests: list[ProduceRequest], version: int, correlation_id: int, client_id: str
) -> None:
    frames = ProduceFrames(_encode_request)
    for one in (*requests, *requests):
        expected = b"".join(_encode_request(Api.PRODUCE, version, correlation_id, client_id, one))
        made = frames.request(version, correlation_id, client_id, one)
        assert made is not None
        assert b"".join(made) == expected
        assert b"".join(encode_request(Api.PRODUCE, version, correlation_id, client_id, one)) == expected


def test_records_stay_segments_of_their_own_and_are_not_copied() -> None:
    payload = memoryview(bytearray(100))
    (topic,) = (ProduceTopic("t", uuid.UUID(int=1), (ProducePartition(0, Records.of((payload,))),)),)
    made = encode_request(Api.PRODUCE, 13, 1, "c", ProduceRequest(-1, 30_000, (topic,)))
    assert any(segment is payload for segment in made)


def test_many_topics_and_partitions_have_counts_of_two_bytes() -> None:
    parts = tuple(ProducePartition(number, Records.of((b"x",))) for number in range(130))
    body = ProduceRequest(-1, 30_000, tuple(ProduceTopic(f"t{number}", None, parts) for number in range(130)))
    for version in (12, 13):
        made = ProduceFrames(_encode_request).request(version, 1, "c", body)
        assert made is not None
        assert b"".join(made) == b"".join(_encode_request(Api.PRODUCE, version, 1, "c", body))


def test_versions_that_are_not_flexible_are_left_to_the_codec() -> None:
    one = ProduceRequest(-1, 30_000, (ProduceTopic("t", None, (ProducePartition(0, Records.of((b"x",))),)),))
    frames = ProduceFrames(_encode_request)
    assert [frames.request(version, 1, "c", one) is None for version in (7, 8, 9)] == [True, True, False]


def test_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_frames, "_MAX_CACHED", 3)
    frames = ProduceFrames(_encode_request)
    for number in range(10):
        topic = ProduceTopic("t", None, (ProducePartition(0, Records.of((b"x",))),))
        assert frames.request(12, 1, "c", ProduceRequest(-1, 1, (topic,), f"id-{number}"))
        assert len(frames._starts) <= 3
