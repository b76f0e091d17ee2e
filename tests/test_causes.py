"""Errors whose cause is a setting of the brokers name it."""

from __future__ import annotations

import pytest

from mirror.causes import ADVERTISED, CONNECTIONS, CONTROLLERS, OFFSET_METADATA, SEGMENT_BYTES, Cause
from mirror.client import Admin
from mirror.cluster.connection.connections import ConnectAttempt
from mirror.cluster.connection.session import BrokerSession
from mirror.cluster.requests import Lane
from mirror.errors import KafkaTimeout, UnsupportedVersion
from mirror.runtime.network.connection import Connection
from mirror.wire.api import Api
from mirror.wire.error_codes import broker_error
from mirror.wire.versions import BrokerVersions
from tests.runtime.listener import Listener

VOTE = 52


@pytest.mark.parametrize(("code", "setting"), [(12, OFFSET_METADATA), (18, SEGMENT_BYTES)])
@pytest.mark.parametrize("message", [None, "The server has its own words."])
def test_an_error_of_a_broker_names_the_setting(code: int, setting: Cause, message: str | None) -> None:
    assert str(broker_error(code, "committing", message)).endswith(f"; {setting.words}")


def test_a_controller_is_told_from_an_old_broker() -> None:
    with pytest.raises(UnsupportedVersion) as of_controller:
        BrokerVersions({Api.API_VERSIONS.spec.key: (0, 4), VOTE: (0, 1)}).pick(Api.METADATA)
    assert str(of_controller.value) == f"{CONTROLLERS.words} (it does not offer Metadata)"
    with pytest.raises(UnsupportedVersion, match="brokers of Apache Kafka"):
        BrokerVersions({Api.API_VERSIONS.spec.key: (0, 4)}).pick(Api.METADATA)


@pytest.mark.parametrize(("node", "known", "named"), [(1, False, True), (1, True, False), (-1, False, False)])
def test_a_broker_that_was_never_reached_may_advertise_a_wrong_address(node: int, *, known: bool, named: bool) -> None:
    session = BrokerSession("broker 1 at b:9092", "mirror", 30_000)
    session.known_broker = known
    error = Connection(Lane.CONTROL, ("b", 9092), session, None, ConnectAttempt(node, 0)).unreachable(
        "no route to host"
    )
    words = f" ({ADVERTISED.words})" if named else ""
    assert str(error) == f"broker 1 at b:9092: no route to host{words}"


def test_a_broker_that_closes_each_connection_may_have_too_many() -> None:
    listener = Listener(hang_up=True)
    try:
        options = {"bootstrap.servers": listener.address, "default.api.timeout.ms": 500}
        with Admin(options) as admin, pytest.raises(KafkaTimeout) as failed:
            admin.list_topics()
    finally:
        listener.close()
    assert CONNECTIONS.words in str(failed.value)
