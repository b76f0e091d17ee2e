"""What a real listener answers: an address that only it has named is called an advertised listener, as in a run."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import Final

import pytest

from mirror import causes
from mirror.client import Admin
from mirror.doctor.cluster_checks import check_cluster
from mirror.doctor.cluster_facts import observe
from mirror.doctor.findings import Severity
from mirror.errors import KafkaTimeout
from mirror.observation import Side
from mirror.wire.api import Api
from mirror.wire.messages.metadata import MetadataBroker, MetadataResponse
from tests.fakes.server_codec import encode_response
from tests.runtime.responder import Responder
from tests.runtime.test_many_connections import greeting

_STEP_MS: Final = 400


def test_an_advertised_listener_that_cannot_be_reached_has_the_words_of_a_run() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nothing listens there
        host, port = closed.getsockname()
        named = MetadataResponse((MetadataBroker(7, host, port),), "cluster", 7)
        version = Api.METADATA.spec.high
        answers = [encode_response(Api.METADATA, version, number, named) for number in range(2, 40)]
        with closing(Responder([*greeting(), *answers])) as server:
            options: dict[str, object] = {"bootstrap.servers": server.address, "reconnect.backoff.max.ms": 50}
            with Admin(options) as admin:
                facts = observe(Side("paris", admin, _STEP_MS), options, (), _STEP_MS)
                (one,) = [one for one in check_cluster(facts, 0.0) if one.severity is Severity.ERROR]
                with pytest.raises(KafkaTimeout) as run:
                    admin.describe_versions([7], timeout_ms=_STEP_MS)
    assert one.what == (
        f"broker 7 at {host}:{port}: connection refused (an advertised listener: bootstrap server {server.address} has"
        " named it)"
    )
    assert f"{one.why}; {one.remedy}" == causes.ADVERTISED.words
    assert causes.ADVERTISED.words in str(run.value)
