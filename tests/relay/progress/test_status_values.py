"""The records of the status topic: what is stored comes back, is bounded, and anything else is a value or nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.cluster.types import TopicPartition
from mirror.relay.model.ranges import CountBasis, Outcome, RangeResult
from mirror.relay.model.reports import COPYING, SETTLED, PartitionReport, TaskState, difference
from mirror.relay.progress import status_values as values
from mirror.relay.progress.status_values import MAX_VALUE_BYTES, RunState, StatusKey, StatusKind

TARGET = TopicPartition("a.t", 3)
KEY = values.partition_key(StatusKind.PARTITION, TARGET)
TASK = TaskState(
    run="r",
    job=2,
    task=5,
    attempt=1,
    host="h",
    pid=7,
    since_ms=1,
    seen_ms=2,
    version=9,
    partitions=300,
    stopping="the run was asked to stop",
)
EXPIRY = {
    "phase": "sent",
    "cause": "no answer",
    "age_ms": 120_000,
    "queued_ms": 1,
    "in_flight_ms": None,
    "attempts": 3,
    "record_count": 10,
    "last_error": "NOT_ENOUGH_REPLICAS",
    "may_have_been_written": True,
    "time_ms": 1_700_000_000_000,
    "start": 5,
    "end": 15,
}
LOSS = {"kind": "truncated", "target_start": 5, "target_end": 9, "start": 5, "end": 9, "time": 1_700_000_000_000}
DIFFERENCE = {
    "kind": "content",
    "start": 1,
    "end": 2,
    "target_offset": 3,
    "records": 1,
    "reason": "another batch",
    "time_ms": 1,
}
RESULT = RangeResult(
    flow="f",
    topic="t",
    target_topic="a.t",
    partition=3,
    start=5,
    end=15,
    records=10,
    batches=2,
    bytes=1_000,
    seconds=1.5,
    outcome=Outcome.EXPIRED,
    error="t-3: delivery.timeout.ms was over",
    skipped={"control": 1},
    deep={"transform": 2},
    gaps={"retention": 3},
    expiries=[EXPIRY],
    target_losses=[LOSS],
    retries=4,
    stuck_since_ms=1_700_000_000_000,
    counted=CountBasis.OFFSETS,
    way="sequences",
    way_reason="records are young",
)
REPORT = PartitionReport(
    target=TARGET,
    run="r",
    job=1,
    task=2,
    attempt=0,
    taken=3,
    state=SETTLED,
    sequence=8,
    version=4,
    result=RESULT,
)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (values.RUN, "run"),
        (values.task_key(12), "task/12"),
        (KEY, "part/a.t/3"),
        (values.partition_key(StatusKind.HEALTH, TopicPartition("t", 0)), "health/t/0"),
        (values.partition_key(StatusKind.TURN, TopicPartition("t", 0)), "turn/t/0"),
        (values.partition_key(StatusKind.ERROR, TopicPartition("t", 0)), "error/t/0"),
        (values.obstacle_key("t"), "obstacle/t"),
        (values.GROUPS, "groups"),
        (values.SYNC, "sync"),
        (values.RATE, "rate"),
        (values.VERIFICATION, "verify"),
        (values.REHEARSAL, "rehearse"),
    ],
)
def test_a_key_is_written_and_parsed(key: StatusKey, text: str) -> None:
    assert str(key) == text
    assert values.parse_key(text.encode()) == key


@pytest.mark.parametrize(
    "key",
    [
        *(None, b"", b"\xff", b"run/1", b"task", b"task/x", b"task/-1", b"task/01", b"task/2147483648", b"task/ 1"),
        *(b"part/t", b"part/t/1/2", b"part//1", b"part/a b/1", b"part/" + b"t" * 250 + b"/1", b'{"topic":"t"}'),
    ],
)
def test_other_keys_are_none(key: bytes | None) -> None:
    assert values.parse_key(key) is None


def test_what_tasks_and_the_driver_report_comes_back() -> None:
    assert values.decode(values.task_key(5), values.encode(TASK), "f") == TASK
    assert values.decode(KEY, values.encode_report(REPORT), "f") == REPORT
    plain = replace(REPORT, state=COPYING, result=replace(RangeResult(**_empty()), start=5, end=5))
    assert values.decode(KEY, values.encode_report(plain), "f") == plain
    unknown = replace(plain, state=SETTLED, result=replace(plain.result, topic=""))
    assert values.decode(KEY, values.encode_report(unknown), "f") == unknown, "it may be settled without a copy"
    state = RunState(
        run="r",
        job=3,
        host="h",
        state="held",
        since_ms=4,
        reason="x",
        until_ms=5,
        failures=6,
        follows=True,
        complete_ms=7,
    )
    assert values.decode(values.RUN, values.encode(state), "f") == state
    shown = {"reason": "it is refused"}
    assert values.decode(values.obstacle_key("t"), values.encode(shown), "f") == {"v": 1, **shown}


def _empty() -> dict[str, Any]:
    return {"flow": "f", "topic": "t", "target_topic": "a.t", "partition": 3, "start": 0, "end": 0}


@pytest.mark.parametrize("letter", ["x", "\u00e4", "\U0001f600"])
def test_a_report_has_a_bounded_size_and_keeps_the_last_records(letter: str) -> None:
    long = letter * 10_000
    expiries = [{**EXPIRY, "last_error": long, "time_ms": number} for number in range(50)]
    losses = [{**LOSS, "time": number} for number in range(50)]
    result = replace(RESULT, error=long, way_reason=long, expiries=expiries, target_losses=losses)
    data = values.encode_report(replace(REPORT, result=result))
    assert len(data) <= MAX_VALUE_BYTES
    stored = values.decode(KEY, data, "f")
    assert isinstance(stored, PartitionReport)
    assert stored.result.records == 10
    assert (stored.result.error or "").startswith(letter * 500)
    if letter == "x":
        assert [one["time"] for one in stored.result.target_losses] == [47, 48, 49]
        assert [one["time_ms"] for one in stored.result.expiries] == [47, 48, 49]
    state = values.encode(replace(TASK, host=long[:255], stopping=long))
    assert len(state) < 6_000


PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=9) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
@settings(max_examples=150)
def test_anything_that_is_stored_is_a_value_to_compute_with_or_nothing(data: st.DataObject) -> None:
    """A record with one field, at any depth, that another program has replaced."""
    stored = json.loads(values.encode_report(REPORT))
    place, other = stored, data.draw(PLAIN)
    while True:
        name = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[name], dict | list) or not place[name] or data.draw(st.booleans()):
            place[name] = other
            break
        place = place[name]
    found = values.decode(KEY, json.dumps(stored).encode(), "f")
    if found is None:
        return
    assert isinstance(found, PartitionReport)
    again = values.decode(KEY, values.encode_report(found), "f")
    assert isinstance(again, PartitionReport)
    assert again.target == TARGET
    assert sum(again.result.skipped.values()) >= 0
    assert difference(found.result, REPORT.result).records <= 2**53
    assert str(found.result.error).isprintable()
    for expiry in found.result.expiries:
        assert int(expiry["time_ms"]) >= 0
        assert (expiry["phase"] + expiry["cause"]).isprintable()


@pytest.mark.parametrize("kind", [values.RUN, values.task_key(1), KEY, values.VERIFICATION])
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"v":2}', b'{"run":"r"}', b"\xff", b"[" * 4_000])
def test_a_value_of_another_version_or_program_is_none(kind: StatusKey, data: bytes) -> None:
    assert values.decode(kind, data, "f") is None
