"""The status topic on fake brokers: several hosts write, any other one reads, and no writer waits for the target."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from mirror.client import TopicPartition
from mirror.errors import KafkaTimeout
from mirror.relay.model.reports import TaskState
from mirror.relay.progress import flow_topic, status_topic, status_values
from mirror.relay.progress.flow_topic import status_topic_of
from mirror.relay.progress.status_topic import StatusFollower, StatusRecord, StatusWriter, write_status
from mirror.relay.progress.status_values import RunState, StatusKind
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.control import Action, ServerCall
from tests.polling import eventually
from tests.relay.fake_pair import FakePair
from tests.relay.progress.test_status_values import REPORT, TASK

TOPIC = status_topic_of("f")
RUN = RunState(run="r", since_ms=1, state="running")
LIVES = replace(TASK, stopping="")

NewWriter = Callable[[], StatusWriter]


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    monkeypatch.setattr(status_topic, "_BACKOFF_MS", (1, 1))
    made = FakePair(monkeypatch)
    made.target.add_topic(TOPIC)
    return made


@pytest.fixture
def follower(pair: FakePair) -> Iterator[StatusFollower]:
    made = StatusFollower(options(pair), "f")
    yield made
    made.close()


@pytest.fixture
def new_writer(pair: FakePair) -> Iterator[NewWriter]:
    """Make writers whose threads end with the test, also when it fails."""
    made: list[StatusWriter] = []

    def make() -> StatusWriter:
        made.append(StatusWriter(options(pair), "f"))
        return made[-1]

    yield make
    pair.target.control.clear()
    for writer in made:
        writer.close(5_000)


def options(pair: FakePair) -> dict[str, Any]:
    return {"bootstrap.servers": pair.target.bootstrap}


def test_two_writers_and_a_follower(new_writer: NewWriter, follower: StatusFollower) -> None:
    task, driver = new_writer(), new_writer()
    task.send(TASK)
    task.send(REPORT)
    driver.put(status_values.RUN, RUN)
    assert task.close(5_000) is None
    assert driver.close(5_000) is None
    news = follower.news()
    assert news.again
    assert (news.tasks, news.partitions, news.not_understood) == ([TASK], [REPORT], 0)
    assert (status_values.RUN, RUN) in [record[:2] for record in news.records]
    again = new_writer()
    again.put(status_values.RUN, None)
    assert again.close(5_000) is None
    news = follower.news()
    assert (news.again, [record[:2] for record in news.records]) == (False, [(status_values.RUN, None)])
    assert follower.news().records == []


def test_the_first_reading_has_the_last_value_of_each_key_and_later_ones_have_all(
    pair: FakePair, follower: StatusFollower
) -> None:
    first, second = (RunState(run=run, since_ms=1) for run in "rs")

    def write(state: RunState) -> None:
        assert write_status(options(pair), "f", {status_values.RUN: state}, 5_000) is None

    for state in (first, second):
        write(state)
    assert [record.value for record in follower.news().records] == [second]
    for state in (first, second):
        write(state)
    assert [record.value for record in follower.news().records] == [first, second], "each report counts"


def test_a_missing_topic_is_not_waited_for(pair: FakePair, follower: StatusFollower) -> None:
    del pair.target.topics[TOPIC]
    assert not follower.news().exists
    error = write_status(options(pair), "f", {status_values.RUN: RUN}, 600_000)
    assert str(error) == f"topic {TOPIC} does not exist: the next run of the flow creates it"


def test_records_of_other_programs_are_passed_over(pair: FakePair, follower: StatusFollower) -> None:
    pair.target.log(TOPIC).append_values(b"no key")
    write_status(options(pair), "f", {status_values.VERIFICATION: {"x": 1}}, 5_000)
    news = follower.news()
    assert news.not_understood == 1
    assert [record.key for record in news.records] == [status_values.VERIFICATION]


def test_while_the_target_is_away_a_writer_keeps_the_newest_value_of_each_key(
    pair: FakePair, new_writer: NewWriter, follower: StatusFollower
) -> None:
    refused = Action(errors={TopicPartition(TOPIC, 0): errors.TOPIC_AUTHORIZATION_FAILED})
    asked = threading.Semaphore(0)

    def refuses(call: ServerCall) -> Action | None:
        if call.api is not Api.PRODUCE:
            return None
        asked.release()
        return refused

    pair.target.control.add(refuses)
    writer = new_writer()
    for sequence in range(100):
        writer.send(replace(REPORT, sequence=sequence))
    writer.send(TASK)
    assert asked.acquire(timeout=30)
    assert asked.acquire(timeout=30), "it is written again"
    writer.send(replace(REPORT, sequence=100))
    eventually(lambda: writer.error is not None)
    pair.target.control.clear()
    assert writer.close(5_000) is None
    news = follower.news()
    assert [report.sequence for report in news.partitions] == [100]
    assert news.tasks == [TASK]


def test_close_is_bounded_and_says_what_was_not_written(pair: FakePair, new_writer: NewWriter) -> None:
    refused = Action(errors={TopicPartition(TOPIC, 0): errors.TOPIC_AUTHORIZATION_FAILED})
    pair.target.control.on(Api.PRODUCE, refused, times=None)
    writer = new_writer()
    writer.send(TASK)
    error = writer.close(5_000)
    assert TOPIC in str(error)
    pair.target.control.clear()
    held = pair.target.control.on(Api.PRODUCE, Action(hold="before"))
    stuck = new_writer()
    stuck.send(TASK)
    assert isinstance(stuck.close(20), KafkaTimeout)
    stuck.send(REPORT)
    assert not stuck._pending, "nothing more is accepted"
    held.release()
    assert stuck.close(5_000) is None


def test_a_writer_without_records_has_no_thread_and_one_with_many_writes_some_at_a_time(
    pair: FakePair, new_writer: NewWriter, follower: StatusFollower
) -> None:
    assert new_writer().close(0) is None
    writer = new_writer()
    produces: list[ServerCall] = []

    def count(call: ServerCall) -> Action | None:
        produces.extend([call] if call.api is Api.PRODUCE else [])
        return None

    pair.target.control.add(count)
    for partition in range(1_200):
        writer.put(status_values.partition_key(StatusKind.TURN, TopicPartition("t", partition)), {"ms": 1})
    assert writer.close(10_000) is None
    assert len(follower.news().records) == 1_200
    assert len(produces) < 50


def test_what_changes_faster_than_the_target_takes_it_is_written_in_turn_and_tasks_with_each_write(
    pair: FakePair, new_writer: NewWriter, follower: StatusFollower
) -> None:
    """A task with thousands of busy partitions would be taken for lost, and some of these would never be reported."""
    follower.news()
    writer = new_writer()
    keys = [status_values.partition_key(StatusKind.TURN, TopicPartition("t", number)) for number in range(1_200)]
    seen: list[StatusRecord] = []

    def report() -> None:
        writer.send(TASK)  # first: the writer's thread takes what is there, also in the midst of this
        for key in keys:
            writer.put(key, {"ms": 1})

    def report_again(call: ServerCall) -> Action | None:
        if call.api is Api.PRODUCE:
            report()
        return None

    pair.target.control.add(report_again)
    report()
    eventually(lambda: len(with_records(seen, follower)) > 4 * len(keys), what="four times as many records as keys")
    assert {record.key for record in seen} == {*keys, status_values.task_key(TASK.task)}
    assert [record.value for record in seen].count(TASK) >= len(seen) // 500


def with_records(seen: list[StatusRecord], follower: StatusFollower) -> list[StatusRecord]:
    seen += follower.news().records
    return seen


def with_news(seen: list[TaskState], follower: StatusFollower) -> list[TaskState]:
    seen += follower.news().tasks
    return seen


def test_the_sign_of_life_of_a_task_whose_turn_takes_long_is_repeated(
    new_writer: NewWriter, follower: StatusFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_topic, "_REPEAT_S", 0.01)
    writer, seen = new_writer(), list[TaskState]()
    writer.send(LIVES)
    eventually(lambda: len(with_news(seen, follower)) >= 3, what="three signs of life")
    assert writer.close(5_000) is None
    assert all(before.seen_ms < after.seen_ms for before, after in itertools.pairwise(seen))
    assert {replace(one, seen_ms=0) for one in seen} == {replace(LIVES, seen_ms=0)}


@pytest.mark.parametrize(("state", "stuck_s"), [(LIVES, 0.0), (TASK, 60.0)])
def test_that_of_one_that_is_stuck_or_ends_is_not(
    new_writer: NewWriter,
    follower: StatusFollower,
    monkeypatch: pytest.MonkeyPatch,
    state: TaskState,
    stuck_s: float,
) -> None:
    monkeypatch.setattr(status_topic, "_REPEAT_S", 0.0)
    monkeypatch.setattr(status_topic, "_STUCK_S", stuck_s)
    writer, found = new_writer(), list[TaskState]()
    writer.send(state)
    eventually(lambda: with_news(found, follower), what="the report")
    writer.put(status_values.RUN, RUN)
    assert writer.close(5_000) is None
    assert [*found, *follower.news().tasks] == [state]


def test_a_record_that_is_always_rejected_is_dropped_and_delays_no_other(
    pair: FakePair,
    new_writer: NewWriter,
    follower: StatusFollower,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(status_topic, "_BACKOFF_MS", (60_000, 60_000))
    monkeypatch.setattr(flow_topic, "_COMPRESSION", "none")
    keys = [status_values.partition_key(StatusKind.ERROR, TopicPartition("t", number)) for number in range(5)]

    def rejects(call: ServerCall) -> Action | None:
        if call.api is not Api.PRODUCE or "error/t/2" not in repr(call.body):
            return None
        return Action(errors={TopicPartition(TOPIC, 0): errors.INVALID_RECORD})

    pair.target.control.add(rejects)
    writer = new_writer()
    for key in keys:
        writer.put(key, {"x": 1})
    assert writer.close(5_000) is None
    assert [record.key for record in follower.news().records] == [key for key in keys if key.number != 2]
    (line,) = [record.getMessage() for record in caplog.records if "which is dropped" in record.getMessage()]
    assert "rejects the record error/t/2, which is dropped: " in line
