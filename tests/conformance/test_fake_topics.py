"""Topics as brokers create them, on the fake and on real brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirror.wire.api import Api
from mirror.wire.messages.admin import CreatableTopic, CreateTopicsRequest
from tests.conformance.raw_brokers import Wire
from tests.fakes import errors

_VERSION = 7


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize(
    ("replicas", "code"),
    [(-1, 0), (1, 0), (2, errors.INVALID_REPLICATION_FACTOR)],
    ids=["the brokers' default", "one", "more than brokers"],
)
def test_a_topic_has_no_more_replicas_than_there_are_brokers(
    wire: Wire, unique: Callable[[str], str], replicas: int, code: int, *, validate_only: bool
) -> None:
    asked = CreatableTopic(unique("replicas"), 1, replicas, (), ())
    answer = wire.ask(Api.CREATE_TOPICS, _VERSION, CreateTopicsRequest((asked,), 30_000, validate_only))
    assert [one.error_code for one in answer.topics] == [code]
