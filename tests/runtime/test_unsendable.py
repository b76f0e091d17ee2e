"""A message that cannot be encoded, should one slip through, fails alone: not its connection, not the loop."""

from __future__ import annotations

import pytest

from mirror.cluster.connection.session import BrokerSession
from mirror.errors import InvalidArgument
from mirror.wire.api import Api
from mirror.wire.messages.base import Message
from mirror.wire.messages.metadata import FindCoordinatorRequest, MetadataRequest, MetadataResponse
from tests.cluster.probes import ByHand, Probe

UNSENDABLE: dict[str, tuple[Api, int, Message]] = {
    "TypeError": (Api.FIND_COORDINATOR, 4, FindCoordinatorRequest(0, (5,))),  # type: ignore[arg-type]
    "AttributeError": (Api.METADATA, 12, MetadataRequest(("t",))),  # type: ignore[arg-type]
    "UnicodeEncodeError": (Api.FIND_COORDINATOR, 4, FindCoordinatorRequest(0, ("\ud800",))),
    "error": (Api.FIND_COORDINATOR, 4, FindCoordinatorRequest(2**20, ("g",))),  # struct's own
    "a string has 40000 bytes, more than 32767": (Api.FIND_COORDINATOR, 2, FindCoordinatorRequest(0, (), "g" * 40_000)),
}


@pytest.mark.parametrize("kind", UNSENDABLE)
@pytest.mark.parametrize("ready", [True, False], ids=["sent at once", "held back first"])
def test_a_message_that_cannot_be_encoded_fails_alone(kind: str, ready: bool) -> None:
    api, version, body = UNSENDABLE[kind]
    hand, before, wrong, after = ByHand(), Probe(), Probe(api=api, body=body), Probe()
    ranges = {Api.METADATA: (0, 12), api: (0, version)}
    if ready:
        hand.negotiate(0, ranges)
    for probe in (before, wrong, after):
        hand.session.send(probe.request, 0)
    if not ready:
        hand.negotiate(0, ranges)
    (error,) = wrong.failures
    assert isinstance(error, InvalidArgument)
    assert f"broker 1 at broker-1.fake:9092: {api.label} cannot be sent" in str(error)
    assert kind in str(error)
    for asked in hand.read():
        assert asked[0] is Api.METADATA
        hand.answer(asked, MetadataResponse((), "cluster", 1), 1)
    assert [before.completions, len(before.responses), after.completions, len(after.responses)] == [1, 1, 1, 1]
    assert wrong.completions == 1
    assert hand.session.load == 0


def test_what_the_session_itself_cannot_send_ends_the_connection_without_being_quoted() -> None:
    """Its own messages carry secrets, and come before anybody else's."""
    session = BrokerSession("broker 1 at broker-1.fake:9092", "secret" * 10_000, 30_000)
    waiting = Probe(body=MetadataRequest(()))
    session.send(waiting.request, 0)
    with pytest.raises(InvalidArgument, match="ApiVersions cannot be sent") as raised:
        session.start(0)
    assert "secret" not in str(raised.value)
    assert not session.outgoing
    session.fail(raised.value, 0)
    assert waiting.failures == [raised.value]
