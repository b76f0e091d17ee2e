"""How large a response may be: as large as its request can have it, however hostile the broker."""

from __future__ import annotations

import struct

import pytest

from mirror.errors import ProtocolError
from mirror.wire.api import Api
from mirror.wire.messages.base import Message
from mirror.wire.messages.epochs import OffsetForLeaderEpochRequest
from mirror.wire.messages.fetch import FetchRequest, ListOffsetsRequest
from mirror.wire.messages.groups import ListGroupsRequest, OffsetFetchRequest
from mirror.wire.messages.metadata import MetadataRequest
from mirror.wire.messages.produce import InitProducerIdRequest
from tests.cluster.probes import ByHand, Probe

MIB = 2**20
ALL_TOPICS = MetadataRequest(None)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def asked(api: Api, body: Message) -> tuple[ByHand, Probe, bytes]:
    """A session with this request in flight, its probe, and its correlation id."""
    hand, probe = ByHand(), Probe(api=api, body=body)
    hand.negotiate()
    hand.session.send(probe.request, 1)
    (sent,) = hand.read()
    return hand, probe, struct.pack(">i", sent[2])


@pytest.mark.parametrize(
    ("api", "body", "most"),
    [
        (Api.METADATA, ALL_TOPICS, 64 * MIB),
        (Api.LIST_GROUPS, ListGroupsRequest(()), 64 * MIB),
        (Api.LIST_OFFSETS, ListOffsetsRequest(0, ()), 64 * MIB),
        (Api.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest(()), 64 * MIB),
        (Api.OFFSET_FETCH, OffsetFetchRequest(()), 256 * MIB),
        (Api.INIT_PRODUCER_ID, InitProducerIdRequest("id", 1), MIB),
        (Api.FETCH, FetchRequest(0, 0, 1_000, 1, ()), 128 * MIB + 1_000),
        (Api.FETCH, FetchRequest(0, 0, 300 * MIB, 1, ()), 428 * MIB),
    ],
    ids=lambda value: value.label if isinstance(value, Api) else "",
)
def test_a_response_larger_than_its_kind_is_refused_by_its_size(api: Api, body: Message, most: int) -> None:
    """Before memory is allocated: of the refused one only the size has arrived."""
    hand, _, _ = asked(api, body)
    hand.feed(struct.pack(">i", most), 2)
    hand, _, _ = asked(api, body)
    with pytest.raises(
        ProtocolError, match=rf"broker 1 .*: the {api.label} response of {most + 1} bytes .* to {most}\)"
    ):
        hand.feed(struct.pack(">i", most + 1), 2)


def test_the_bound_is_that_of_the_request_whose_response_comes_next() -> None:
    """Their responses come in order, also in one piece."""
    hand, all_topics = ByHand(), Probe(body=ALL_TOPICS)
    producer = Probe(api=Api.INIT_PRODUCER_ID, body=InitProducerIdRequest("id", 1))
    hand.negotiate()
    hand.session.send(all_topics.request, 1)
    hand.session.send(producer.request, 1)
    first, _ = hand.read()
    answer = metadata(struct.pack(">i", first[2]), topic("n" * 249, 5) * 4_000, 4_000)
    assert len(answer) > MIB
    with pytest.raises(ProtocolError, match=rf"the InitProducerId response of {MIB + 1} bytes"):
        hand.feed(answer + struct.pack(">i", MIB + 1), 2)
    assert all_topics.completions == 1


def test_what_was_not_asked_for_is_refused_by_its_size() -> None:
    hand = ByHand()
    hand.negotiate()
    with pytest.raises(ProtocolError, match=rf"a frame of {MIB + 1} bytes \(allowed: 4 to {MIB}\)"):
        hand.feed(struct.pack(">i", MIB + 1), 2)


def topic(name: str, replicas: int) -> bytes:
    """A topic of Metadata with one partition."""
    nodes = varint(replicas + 1) + b"".join(struct.pack(">i", node) for node in range(replicas))
    partition = bytes(2) + struct.pack(">iii", 0, 1, 5) + nodes + nodes + b"\1" + b"\0"
    head = bytes(2) + varint(len(name) + 1) + name.encode() + bytes(16) + b"\0"
    return head + varint(2) + partition + struct.pack(">i", -(2**31)) + b"\0"


def metadata(correlation_id: bytes, topics: bytes, count: int) -> bytes:
    begin = correlation_id + b"\0" + bytes(4) + b"\1" + b"\0" + bytes(4)
    frame = begin + varint(count + 1) + topics + bytes(4) + b"\0"
    return struct.pack(">i", len(frame)) + frame


def test_metadata_of_a_hundred_thousand_topics_with_the_longest_names_is_read() -> None:
    hand, probe, correlation_id = asked(Api.METADATA, ALL_TOPICS)
    hand.feed(metadata(correlation_id, topic("n" * 249, 5) * 100_000, 100_000), 2)
    assert len(probe.responses[0].topics) == 100_000
    assert len(probe.responses[0].topics[-1].partitions[0].isr_nodes) == 5


def test_the_lists_of_a_response_are_bounded_together() -> None:
    """It has less than its bytes may be, and would hold the network thread: refused once there are too many items."""
    hand, probe, correlation_id = asked(Api.METADATA, ALL_TOPICS)
    one = topic("n", 4_000)
    assert 1_000 * len(one) < 64 * MIB
    with pytest.raises(ProtocolError, match=r"a list of 4000 items .* may have at most 8000000 in all"):
        hand.feed(metadata(correlation_id, one * 1_000, 1_000), 2)
    assert probe.responses == []


@pytest.mark.cluster
def test_metadata_of_half_a_million_partitions_is_read() -> None:
    """With three replicas they are 3.5 million items; here in few topics with many replicas, which are read faster."""
    hand, probe, correlation_id = asked(Api.METADATA, ALL_TOPICS)
    hand.feed(metadata(correlation_id, topic("n", 4_000) * 440, 440), 2)
    assert len(probe.responses[0].topics) == 440
