"""A request that has timed out for its caller is still outstanding; the newest version to speak may be bounded."""

from __future__ import annotations

import pytest

from mirror.cluster.connection.session import disconnected
from mirror.errors import ConnectionFailed, KafkaTimeout, ProtocolError
from mirror.wire.api import Api
from mirror.wire.messages.metadata import MetadataResponse
from tests.cluster.probes import ByHand, Probe

_METADATA = MetadataResponse((), "cluster", 1)


def _settled(probe: Probe) -> list[int]:
    times: list[int] = []
    probe.request.on_settled = times.append
    return times


def test_a_late_answer_settles_what_was_given_up() -> None:
    hand, probe = ByHand(), Probe(timeout_ms=100)
    times = _settled(probe)
    hand.negotiate()
    hand.session.send(probe.request, 0)
    (asked,) = hand.read()
    assert not hand.session.expire(100)
    assert isinstance(probe.failures[0], KafkaTimeout)
    assert not times
    hand.answer(asked, _METADATA, 700)
    assert times == [700]
    assert probe.completions == 1


def test_so_does_the_connections_end() -> None:
    hand, given_up, waited_for = ByHand(), Probe(timeout_ms=100), Probe()
    times, others = _settled(given_up), _settled(waited_for)
    hand.negotiate()
    hand.session.send(given_up.request, 0)
    hand.session.send(waited_for.request, 0)
    hand.session.expire(100)
    hand.session.fail(disconnected("broker", "gone"), 800)
    assert times == [800]
    assert not others
    assert isinstance(waited_for.failures[0], ConnectionFailed)


def test_what_was_never_sent_is_settled_at_once() -> None:
    hand, probe = ByHand(), Probe(timeout_ms=100)
    times = _settled(probe)
    hand.session.send(probe.request, 0)
    hand.session.expire(100)
    assert times == [100]
    assert isinstance(probe.failures[0], KafkaTimeout)


def test_a_broken_answer_settles_too() -> None:
    hand, probe = ByHand(), Probe(timeout_ms=100)
    times = _settled(probe)
    hand.negotiate()
    hand.session.send(probe.request, 0)
    (asked,) = hand.read()
    hand.session.expire(100)
    broken = b"\x00\x00\x00\x05" + asked[2].to_bytes(4, "big") + b"\x00"
    with pytest.raises(ProtocolError):
        hand.feed(broken, 300)
    assert times == [300]
    assert probe.completions == 1


def test_an_answer_in_time_settles_by_itself() -> None:
    hand, probe = ByHand(), Probe()
    times = _settled(probe)
    hand.negotiate()
    hand.session.send(probe.request, 0)
    (asked,) = hand.read()
    hand.answer(asked, _METADATA, 10)
    assert len(probe.responses) == 1
    assert not times


def test_a_request_may_bound_its_version() -> None:
    hand, probe = ByHand(), Probe()
    hand.negotiate()
    probe.request.max_version = 11
    hand.session.send(probe.request, 0)
    (asked,) = hand.read()
    assert asked[:2] == (Api.METADATA, 11)
