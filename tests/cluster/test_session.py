"""One connection's protocol: negotiation, order, timeouts."""

from __future__ import annotations

import struct

import pytest

from mirror.cluster.connection.session import disconnected
from mirror.errors import BrokerError, ConnectionFailed, KafkaTimeout, ProtocolError, UnsupportedVersion
from mirror.wire.api import Api
from mirror.wire.messages.metadata import FindCoordinatorRequest, FindCoordinatorResponse, MetadataResponse
from mirror.wire.messages.session import ApiVersionsResponse
from tests.cluster.probes import ByHand, Probe
from tests.fakes.server_codec import encode_response

_METADATA = MetadataResponse((), "cluster", 1)


def test_versions_are_negotiated_before_anything_else_and_requests_wait() -> None:
    hand, probe = ByHand(), Probe()
    hand.session.send(probe.request, 0)
    assert not hand.read()
    assert hand.session.load == 1
    hand.session.start(5)
    (asked,) = hand.read()
    assert (asked[0], asked[1]) == (Api.API_VERSIONS, 3)
    hand.send_versions(asked, 6)
    (metadata,) = hand.read()
    assert metadata[:2] == (Api.METADATA, 13)
    hand.answer(metadata, _METADATA, 7)
    assert [response.cluster_id for response in probe.responses] == ["cluster"]
    assert hand.session.load == 0


def test_a_refused_negotiation_ends_the_connection() -> None:
    hand = ByHand()
    hand.session.start(0)
    (asked,) = hand.read()
    with pytest.raises(BrokerError, match=r"broker 1 at .* ApiVersions: UNKNOWN_SERVER_ERROR"):
        hand.answer(asked, ApiVersionsResponse(-1, ()), 1)


def test_a_request_in_no_common_version_fails_alone() -> None:
    hand, old, fine = ByHand(), Probe(), Probe(api=Api.FIND_COORDINATOR, body=FindCoordinatorRequest(0, ("g",)))
    hand.session.send(old.request, 0)
    hand.session.send(fine.request, 0)
    hand.negotiate(1, {Api.METADATA: (0, 5), Api.FIND_COORDINATOR: (0, 4)})
    assert isinstance(old.failures[0], UnsupportedVersion)
    (asked,) = hand.read()
    assert asked[:2] == (Api.FIND_COORDINATOR, 4)
    hand.answer(asked, FindCoordinatorResponse(()), 2)
    assert fine.completions == 1


def test_answers_come_in_order_and_a_correlation_mismatch_ends_the_connection() -> None:
    hand, first, second = ByHand(), Probe(), Probe()
    hand.negotiate()
    hand.session.send(first.request, 1)
    hand.session.send(second.request, 1)
    one, two = hand.read()
    assert one[2] != two[2]
    with pytest.raises(ProtocolError, match=f"answer {two[2]} to no request of ours, or out of order"):
        hand.answer(two, _METADATA, 2)
    assert first.completions == second.completions == 0
    hand.session.fail(disconnected("broker 1", "closed"), 3)
    assert (first.completions, second.completions) == (1, 1)


def test_an_answer_to_nothing_ends_the_connection() -> None:
    hand = ByHand()
    hand.negotiate()
    with pytest.raises(ProtocolError, match="answer 99"):
        hand.feed(encode_response(Api.METADATA, 13, 99, _METADATA), 1)


def test_an_unreadable_answer_fails_its_request_once_and_ends_the_connection() -> None:
    hand, probe, behind = ByHand(), Probe(), Probe()
    hand.negotiate()
    hand.session.send(probe.request, 1)
    hand.session.send(behind.request, 1)
    asked, _ = hand.read()
    junk = struct.pack(">i", asked[2]) + b"\0\xff"
    with pytest.raises(ProtocolError, match="Metadata response"):
        hand.feed(struct.pack(">i", len(junk)) + junk, 2)
    hand.session.fail(disconnected("broker 1", "closed"), 2)
    assert [type(error) for error in probe.failures] == [ProtocolError]
    assert [type(error) for error in behind.failures] == [ConnectionFailed]


def test_an_impossible_frame_size_ends_the_connection() -> None:
    hand = ByHand()
    hand.negotiate()
    with pytest.raises(ProtocolError, match="is this a Kafka listener"):
        hand.feed(b"HTTP", 1)


def test_a_callers_deadline_costs_its_neighbours_nothing() -> None:
    """The caller gets its timeout, the connection stays, and the late answer is passed over."""
    hand, hurried, patient = ByHand(), Probe(timeout_ms=100), Probe()
    hand.negotiate()
    hand.session.send(hurried.request, 1_000)
    hand.session.send(patient.request, 1_000)
    assert hand.session.wait_ms(1_000) == 100
    assert hand.session.expire(1_099) is False
    assert hurried.completions == 0
    assert hand.session.expire(1_100) is False
    assert isinstance(hurried.failures[0], KafkaTimeout)
    assert "no answer to Metadata within 100 ms" in str(hurried.failures[0])
    assert hand.session.wait_ms(1_100) == 29_900
    for asked in hand.read():
        hand.answer(asked, _METADATA, 1_200)
    assert hurried.completions == 1
    assert len(patient.responses) == 1


def test_a_silent_connection_is_given_up_after_the_request_timeout() -> None:
    hand, probe = ByHand(request_timeout_ms=500), Probe(timeout_ms=400)
    hand.negotiate()
    hand.session.send(probe.request, 1_000)
    assert hand.session.expire(1_400) is False
    assert hand.session.wait_ms(1_400) == 100
    assert hand.session.expire(1_499) is False
    assert hand.session.expire(1_500) is True
    hand.session.fail(disconnected("broker 1", "silent"), 1_500)
    assert probe.completions == 1


def test_a_silent_negotiation_is_given_up_too() -> None:
    hand = ByHand(request_timeout_ms=500)
    hand.session.start(1_000)
    assert hand.session.wait_ms(1_000) == 500
    assert hand.session.expire(1_499) is False
    assert hand.session.expire(1_500) is True


def test_the_clock_of_a_request_runs_while_it_waits_for_the_connection() -> None:
    hand, hurried, patient = ByHand(), Probe(timeout_ms=100), Probe(timeout_ms=200)
    hand.session.send(hurried.request, 1_000)
    hand.session.send(patient.request, 1_000)
    assert hand.session.expire(1_100) is False
    assert (hurried.completions, patient.completions) == (1, 0)
    hand.negotiate(1_150)
    assert len(hand.read()) == 1, "what has been given up is not sent"
    hand.session.expire(1_200)
    assert patient.completions == 1


@pytest.mark.parametrize("connected", [True, False])
def test_failures_are_reported_once_in_the_order_of_sending(connected: bool) -> None:
    order: list[str] = []
    hand = ByHand()
    if connected:
        hand.negotiate()
    probes = [Probe(name=f"request {n}", order=order) for n in range(4)]
    for probe in probes:
        hand.session.send(probe.request, 1)
    hand.session.fail(disconnected("broker 1", "gone"), 2)
    assert order == ["request 0", "request 1", "request 2", "request 3"]
    assert {str(probe.failures[0]) for probe in probes} == {"broker 1: gone"}
    assert not hand.session.outgoing
    assert hand.session.load == 0
    hand.session.fail(disconnected("broker 1", "again"), 3)
    assert len(order) == 4


def test_a_throttle_of_weeks_is_not_believed() -> None:
    hand, first, second = ByHand(), Probe(), Probe()
    hand.negotiate()
    hand.session.send(first.request, 1_000)
    (asked,) = hand.read()
    hand.answer(asked, MetadataResponse((), throttle_time=2**31 - 1), 1_000)
    hand.session.send(second.request, 1_100)
    hand.session.advance(301_000)
    assert len(hand.read()) == 1


def test_a_throttled_broker_is_left_alone_as_long_as_it_asked() -> None:
    """KIP-219: the answer is there at once, the next request waits."""
    hand, first, second = ByHand(), Probe(), Probe()
    hand.negotiate()
    hand.session.send(first.request, 1_000)
    (asked,) = hand.read()
    hand.answer(asked, MetadataResponse((), throttle_time=250), 1_000)
    assert first.completions == 1
    hand.session.send(second.request, 1_100)
    hand.session.advance(1_249)
    assert not hand.read()
    assert hand.session.wait_ms(1_100) == 150
    hand.session.advance(1_250)
    assert len(hand.read()) == 1
    assert hand.session.throttled_ms == 250
