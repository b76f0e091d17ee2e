"""What shows that MirrorMaker 2 copies again, and the record by which that is known."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mirror.client import TopicPartition
from mirror.mirrormaker.connect_status import StatusKey
from mirror.mirrormaker.source_offsets import SourceOffsetKey, encode_offset
from mirror.takeover.resumption import resumption, running_task, stored_position
from mirror.takeover.takeover_topic import TakeoverKey, TakeoverRecord, encode, encode_key, parse
from mirror.wire.decode import Record

RECORD = TakeoverRecord(
    key=TakeoverKey("a", "copy", "o"),
    cluster=None,
    status_topic="s",
    ends={TopicPartition("o", 0): 7, TopicPartition("o", 24): 0, TopicPartition("s", 4): 2},
    time_ms=1_800_000_000_000,
)
AT_MS = 1_767_225_600_000


def _record(key: bytes, value: bytes | None, at_ms: int = AT_MS) -> Record:
    return Record(0, at_ms, key, value, ())


def _position(
    topic: str = "t", *, connector: str = "copy", cluster: str = "a", value: bytes | None = encode_offset(11)
) -> Record:
    return _record(SourceOffsetKey(connector, cluster, TopicPartition(topic, 3)).to_bytes(), value)


def _status(state: str, task: int | None = 1, connector: str = "copy") -> Record:
    value = json.dumps({"state": state, "trace": None, "worker_id": "w:8083", "generation": 4})
    return _record(StatusKey(connector, task).to_bytes(), value.encode())


@pytest.mark.parametrize(
    ("position", "sign"),
    [
        (_position(), "it has stored offset 11 of t-3 in topic o at 2026-01-01 00:00:00 UTC"),
        (_position()._replace(timestamp_ms=-1), "it has stored offset 11 of t-3 in topic o"),
        (_position()._replace(timestamp_ms=2**62), "it has stored offset 11 of t-3 in topic o"),
        (_position("other"), ""),
        (_position(connector="another"), ""),
        (_position(cluster="b"), ""),
        (_position(value=None), ""),
        (_position(value=b"{}"), ""),
        (_record(b"status-task-copy-1", b"{}"), ""),
    ],
)
def test_a_position_of_the_connector_for_a_topic_of_the_flow_is_a_sign(position: Record, sign: str) -> None:
    assert stored_position(RECORD, [_position("other"), position], {"t"}.__contains__) == sign


@pytest.mark.parametrize(
    ("status", "is_sign"),
    [
        (_status("RUNNING"), True),
        (_status("RUNNING", None), False),
        (_status("RUNNING", connector="copy-1"), False),
        (_status("PAUSED"), False),
        (_status("UNASSIGNED"), False),
        (_status("FAILED"), False),
        (_record(b"status-task-copy-1", None), False),
        (_record(b"status-topic-t:connector-copy", b'{"topic":{}}'), False),
    ],
)
def test_a_task_that_runs_is_a_sign(status: Record, is_sign: bool) -> None:
    sign = "its task 1 is RUNNING on worker w:8083 (generation 4) according to topic s at 2026-01-01 00:00:00 UTC"
    assert running_task(RECORD, [_status("UNASSIGNED"), status]) == (sign if is_sign else "")
    assert running_task(replace(RECORD, others=True), [status]) == "", "it copies other topics"


def test_the_line_says_what_is_wrong_and_what_to_do() -> None:
    line = resumption(RECORD, "why", "f")
    assert line.startswith("MirrorMaker 2 copies again (copy from a): why.")
    assert "stop it, and repeat mirror takeover --flow f" in line
    assert "\n" not in line


@pytest.mark.parametrize(
    "record",
    [RECORD, replace(RECORD, cluster="c", status_topic="", others=True), replace(RECORD, resumed="a sign", ends={})],
)
def test_what_is_stored_is_read_again(record: TakeoverRecord) -> None:
    assert parse(encode_key(record.key), encode(record)) == record


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", encode(RECORD)),
        (b'{"source":"a","connector":"copy"}', encode(RECORD)),
        (b'{"source":"a","connector":5,"offsets_topic":"o"}', encode(RECORD)),
        (encode_key(RECORD.key), None),
        (encode_key(RECORD.key), b"[]"),
        (encode_key(RECORD.key), encode(RECORD).replace(b'"v":1', b'"v":2')),
        (encode_key(RECORD.key), encode(RECORD).replace(b'"time":1800000000000', b'"time":true')),
    ],
)
def test_anything_else_is_not_understood(key: bytes, value: bytes | None) -> None:
    assert parse(key, value) is None


def test_ends_that_are_none_are_left_out() -> None:
    ends = {"o": {"0": 7, "x": 1, "1": -1, "2": True, "\u0661": 3}, "s": 5}
    value = json.dumps({"v": 1, "time": 5, "ends": ends}).encode()
    found = parse(encode_key(RECORD.key), value)
    assert found is not None
    assert found.ends == {TopicPartition("o", 0): 7}
