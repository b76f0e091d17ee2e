"""The states of connectors have the bytes that Kafka Connect 4.3.0 has written (the examples are from its topic)."""

from __future__ import annotations

import pytest

from mirror.mirrormaker.connect_status import State, Status, StatusKey

VALUE = b'{"state":"RUNNING","trace":null,"worker_id":"10.0.0.1:8083","generation":3,"version":"4.3.0"}'


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b"status-connector-MirrorSourceConnector", StatusKey("MirrorSourceConnector")),
        (b"status-connector-a->b.Mirror-1", StatusKey("a->b.Mirror-1")),
        (b"status-task-MirrorSourceConnector-0", StatusKey("MirrorSourceConnector", 0)),
        (b"status-task-copy-2-11", StatusKey("copy-2", 11)),
    ],
)
def test_keys_are_kafka_connects(data: bytes, key: StatusKey) -> None:
    assert StatusKey.parse(data) == key
    assert key.to_bytes() == data


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"status-topic-t:connector-c",
        b"status-task-c",
        b"status-task-c-x",
        b"status-task--1",
        "status-task-c-\u0661".encode(),
        b"\xff",
    ],
)
def test_other_keys_are_none(data: bytes | None) -> None:
    assert StatusKey.parse(data) is None


def test_a_value_is_a_state_with_its_worker_and_generation() -> None:
    found = Status.parse(VALUE)
    assert found == (State.RUNNING, "10.0.0.1:8083", 3)
    assert str(found) == "RUNNING on worker 10.0.0.1:8083 (generation 3)"


@pytest.mark.parametrize("data", [None, b"", b"{", b"[]", b"7", b'{"state":null}', b'{"worker_id":"w"}', b"\xff"])
def test_a_tombstone_and_anything_else_is_no_state(data: bytes | None) -> None:
    assert Status.parse(data) is None


def test_a_state_without_the_rest_is_one() -> None:
    assert Status.parse(b'{"state":"PAUSED","worker_id":5,"generation":-1}') == ("PAUSED", "", 0)
