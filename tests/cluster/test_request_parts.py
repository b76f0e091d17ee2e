"""A request that an old broker answers key by key, and the negotiation with it. Real sessions, a broker by hand."""

from __future__ import annotations

import pytest

from mirror.cluster.connection.session import disconnected
from mirror.errors import BrokerError, ConnectionFailed, KafkaTimeout
from mirror.wire.api import Api
from mirror.wire.messages.base import Message
from mirror.wire.messages.groups import (
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchTopic,
)
from mirror.wire.messages.metadata import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)
from mirror.wire.messages.session import ApiVersion, ApiVersionsResponse
from tests.cluster.probes import ByHand, Probe
from tests.fakes.releases import versions_of
from tests.fakes.server_codec import encode_response


def _lookup(*keys: str, timeout_ms: int = 30_000) -> Probe:
    return Probe(api=Api.FIND_COORDINATOR, body=FindCoordinatorRequest(1, keys), timeout_ms=timeout_ms)


def _old_broker(release: str = "2.1") -> ByHand:
    """A session whose broker has refused the first version request, as brokers before 2.4 do."""
    hand = ByHand()
    hand.session.start(0)
    (asked,) = hand.read()
    if versions_of(release)[Api.API_VERSIONS][1] < asked[1]:
        hand.feed(encode_response(Api.API_VERSIONS, 0, asked[2], ApiVersionsResponse(35)), 0)
        (asked,) = hand.read()
    hand.send_versions(asked, 0, versions_of(release))
    return hand


def test_a_broker_before_2_4_is_asked_for_its_versions_again_in_version_0() -> None:
    hand, probe = ByHand(), Probe()
    hand.session.send(probe.request, 0)
    hand.session.start(0)
    (first,) = hand.read()
    assert first[:2] == (Api.API_VERSIONS, 3)
    hand.feed(encode_response(Api.API_VERSIONS, 0, first[2], ApiVersionsResponse(35)), 1)
    (again,) = hand.read()
    assert again[:2] == (Api.API_VERSIONS, 0)
    hand.send_versions(again, 2, versions_of("2.1"))
    (metadata,) = hand.read()
    assert metadata[:2] == (Api.METADATA, 7)


def test_a_refusal_that_names_versions_is_followed_by_the_highest_of_them() -> None:
    """As KIP-511 has it; version 3 itself is never asked for twice."""
    for named, expected in ((2, 2), (1, 1), (9, 2)):
        hand = ByHand()
        hand.session.start(0)
        (asked,) = hand.read()
        own = ApiVersion(Api.API_VERSIONS.value.key, 0, named)
        hand.feed(encode_response(Api.API_VERSIONS, 0, asked[2], ApiVersionsResponse(35, (own,))), 1)
        (again,) = hand.read()
        assert again[1] == expected


def test_a_broker_that_refuses_every_version_request_ends_the_connection() -> None:
    hand = ByHand()
    hand.session.start(0)
    for _ in range(2):
        (asked,) = hand.read()
        refusal = encode_response(Api.API_VERSIONS, 0, asked[2], ApiVersionsResponse(35))
        if asked[1]:
            hand.feed(refusal, 1)
            continue
        with pytest.raises(BrokerError, match=r"broker 1 at .* ApiVersions: UNSUPPORTED_VERSION"):
            hand.feed(refusal, 1)


def test_coordinators_are_looked_up_one_by_one_before_version_4() -> None:
    hand, probe = _old_broker(), _lookup("a", "b")
    hand.session.send(probe.request, 0)
    first, second = hand.read()
    assert [(one[1], one[3].key, one[3].key_type) for one in (first, second)] == [(2, "a", 1), (2, "b", 1)]  # type: ignore[attr-defined]
    hand.answer(first, FindCoordinatorResponse((), 70, 0, None, 5, "host", 9092), 1)
    assert probe.completions == 0
    hand.answer(second, FindCoordinatorResponse((), 0, 15, "not now"), 2)
    (response,) = probe.responses
    assert response.coordinators == (Coordinator("a", 5, "host", 9092, 0), Coordinator("b", -1, "", -1, 15, "not now"))
    assert response.throttle_time == 70, "the longest of all"


def test_one_request_has_all_coordinators_from_version_4() -> None:
    hand, probe = _old_broker("3.0"), _lookup("a", "b")
    hand.session.send(probe.request, 0)
    (asked,) = hand.read()
    assert (asked[1], asked[3].coordinator_keys) == (4, ("a", "b"))  # type: ignore[attr-defined]


def test_offsets_are_read_group_by_group_before_version_8() -> None:
    groups = (OffsetFetchGroup("g", (OffsetFetchTopic("t", (1,)),)), OffsetFetchGroup("h", None))
    hand, probe = _old_broker(), Probe(api=Api.OFFSET_FETCH, body=OffsetFetchRequest(groups))
    hand.session.send(probe.request, 0)
    first, second = hand.read()
    assert [(one[1], one[3].group_id, one[3].topics) for one in (first, second)] == [  # type: ignore[attr-defined]
        (5, "g", groups[0].topics),
        (5, "h", None),
    ]
    found = OffsetFetchResponseTopic("t", (OffsetFetchResponsePartition(1, 7, 3, "meta"),))
    hand.answer(first, OffsetFetchResponse((), 0, (found,)), 1)
    hand.answer(second, OffsetFetchResponse((), 0, (), 16), 1)
    ((one, other),) = [response.groups for response in probe.responses]
    assert (one.group_id, one.topics, one.error_code) == ("g", (found,), 0)
    assert (other.group_id, other.topics, other.error_code) == ("h", (), 16)


def test_the_first_failure_is_that_of_the_whole_and_the_connections_end_is_one_failure() -> None:
    hand, probe = _old_broker(), _lookup("a", "b", "c")
    settled: list[int] = []
    probe.request.on_settled = settled.append
    hand.session.send(probe.request, 0)
    first = hand.read()[0]
    hand.answer(first, FindCoordinatorResponse(), 1)
    hand.session.fail(disconnected("broker 1", "closed"), 2)
    assert probe.completions == 1
    assert isinstance(probe.failures[0], ConnectionFailed)
    assert not settled, "only what timed out is"


def test_a_whole_that_timed_out_is_settled_when_the_last_part_is_answered() -> None:
    hand, probe = _old_broker(), _lookup("a", "b", timeout_ms=100)
    settled: list[int] = []
    probe.request.on_settled = settled.append
    hand.session.send(probe.request, 0)
    first, second = hand.read()
    hand.answer(first, FindCoordinatorResponse(), 50)
    hand.session.expire(100)
    assert [type(error) for error in probe.failures] == [KafkaTimeout]
    assert not settled
    hand.answer(second, FindCoordinatorResponse(), 700)
    assert settled == [700]
    assert probe.completions == 1


def test_a_key_that_cannot_be_encoded_fails_the_whole_once() -> None:
    hand, probe = _old_broker(), _lookup("a", "\ud800")
    hand.session.send(probe.request, 0)
    (first,) = hand.read()
    assert probe.completions == 1
    hand.answer(first, FindCoordinatorResponse(), 1)
    assert probe.completions == 1


def _leader_of(release: str, epoch: int) -> int:
    """The leader epoch that a caller gets, of a broker that reports ``epoch``."""
    hand, probe = _old_broker(release), Probe()
    hand.session.send(probe.request, 0)
    (asked,) = hand.read()
    topic = MetadataTopic(0, "t", None, partitions=(MetadataPartition(0, 0, 1, epoch),))
    result: Message = MetadataResponse((), "cluster", 1, (topic,))
    hand.answer(asked, result, 1)
    (response,) = probe.responses
    return int(response.topics[0].partitions[0].leader_epoch)


def test_leader_epochs_of_metadata_count_from_2_4_on() -> None:
    """Before, a stale one may be named while replicas are reassigned (``MetadataResponse.hasReliableLeaderEpochs``)."""
    assert [_leader_of(release, 4) for release in ("2.1", "2.4", "2.8")] == [-1, 4, 4]
