"""The copies of one task together: the calls and turns that they cost, and the isolation of their failures."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirror.backoff import Backoff
from mirror.consumer.fetched import Fetched
from mirror.relay.batches.encoder import Encoder
from mirror.relay.batches.reencode import ReencodeResult, Steps
from mirror.relay.model.observer import NullObserver
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import OPEN_END, Outcome
from mirror.relay.origin.records import LogKey
from mirror.relay.partition.attempts.source_reader import MOST_THROTTLED_STALLS
from mirror.relay.partition.context import CopyHandle
from mirror.relay.partition.machine.partition_copy import PartitionCopy
from mirror.relay.progress.log_reading import THROTTLED
from mirror.relay.task.copy_context import TaskContext
from mirror.relay.task.fetch_steering import FetchSteering
from mirror.relay.task.task import Task
from mirror.wire.decode import Record
from mirror.wire.records import AnyBatch
from tests.fakes.clock import FakeClock
from tests.relay.copy_harness import made
from tests.relay.hand_context import TIMES
from tests.relay.task_harness import Source, TaskHarness


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> TaskHarness:
    return TaskHarness(20, monkeypatch)


def test_all_ranges_are_copied_and_results_are_in_their_order(harness: TaskHarness) -> None:
    results = harness.copy()
    assert [result.partition for result in results] == list(range(20))
    assert {(result.outcome, result.end, result.records) for result in results} == {(Outcome.COMPLETE, 2, 2)}
    assert harness.target.committed == dict.fromkeys(range(20), 2)
    assert all([record.value for record in sent] == [b"0", b"1"] for sent in harness.target.sent.values())


def test_a_partition_that_begins_or_ends_is_not_assigned_with_all_others(harness: TaskHarness) -> None:
    """Thousands may change hands, one after the other."""
    for partition in range(10):
        harness.source.logs[partition] = [made(0), made(1)][: 1 + partition % 2]
        harness.source.later[partition] = [(harness.clock.now() + 40 * partition, made(1))]
    assert {result.outcome for result in harness.copy()} == {Outcome.COMPLETE}
    assert harness.source.calls["assigned"] == 20
    assert not harness.source.assigned


def test_copies_that_may_all_go_on_do_so_in_several_turns(
    harness: TaskHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is assigned, and the end of the task, must not wait for thousands that open at once."""
    stepped: list[int] = []
    step_due = Task._step_due

    def counted(task: Task, now: int) -> set[PartitionCopy]:
        waiting = len(task._context.to_step)
        found = step_due(task, now)
        stepped.append(waiting - len(task._context.to_step))
        return found

    monkeypatch.setattr(Task, "_step_due", counted)
    monkeypatch.setattr("mirror.relay.task.task._MOST_STEPPED", 3)
    assert {result.outcome for result in harness.copy()} == {Outcome.COMPLETE}
    assert max(stepped) == 3


@pytest.mark.parametrize("topic_id", [uuid.UUID(int=7), None])
def test_seek_names_the_topic_id_to_read(harness: TaskHarness, topic_id: uuid.UUID | None) -> None:
    harness.target.topic_id = str(topic_id or "no UUID")
    assert {result.outcome for result in harness.copy()} == {Outcome.COMPLETE}
    assert harness.source.topics == {topic_id}


class Origin:
    """Knows all producers; the test sees which logs it is asked about, and it leaves out the second batch of each."""

    def __init__(self) -> None:
        self.logs: list[LogKey] = []

    def undecided(self, fetched: Fetched) -> set[int]:
        del fetched
        return set()

    def refusal(self, fetched: Fetched) -> None:
        del fetched

    def is_foreign(self, log: LogKey, batch: AnyBatch) -> bool:
        self.logs.append(log)
        return int(batch.base_offset) == 1


def test_the_origin_is_that_of_a_batch_in_the_topic_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = TaskHarness(1, monkeypatch)
    harness.origin, harness.source.topic_id = Origin(), uuid.UUID(int=7)
    (result,) = harness.copy()
    assert (result.end, result.records, result.skipped) == (2, 1, {"not-local": 1})
    assert harness.origin.logs == [LogKey(harness.target.topic_id, 0), LogKey(str(uuid.UUID(int=7)), 0)]


@pytest.mark.parametrize("throttles", [True, False])
def test_a_source_that_throttles_is_waited_for(
    harness: TaskHarness, caplog: pytest.LogCaptureFixture, *, throttles: bool
) -> None:
    for partition in (3, 8):
        harness.source.logs[partition] = [made(0)]
        harness.source.later[partition] = [(harness.clock.now() + 5 * TIMES.stall_ms, made(1))]
    harness.source.throttles = throttles
    results = harness.copy()
    failed = {result.partition for result in results if result.outcome is not Outcome.COMPLETE}
    assert failed == (set() if throttles else {3, 8})
    assert ("2 partitions of the source wait: its broker throttles this client" in caplog.text) == throttles


def test_a_source_that_only_throttles_is_given_up(harness: TaskHarness) -> None:
    """A batch that is larger than what the quota lets pass in all its samples never comes."""
    harness.source.logs[3] = [made(0)]
    harness.source.throttles = True
    began_ms = harness.clock.now()
    results = harness.copy()
    assert [result.partition for result in results if result.outcome is not Outcome.COMPLETE] == [3]
    silent_ms = TIMES.stall_ms * MOST_THROTTLED_STALLS
    assert results[3].error == f"t-3: nothing came from the source for {silent_ms} ms: {THROTTLED}"
    assert silent_ms <= harness.clock.now() - began_ms < 1.2 * silent_ms


def test_silent_source_fails_only_its_partition_and_its_error_is_read_once(harness: TaskHarness) -> None:
    for partition in (3, 8):
        del harness.source.logs[partition]
    results = harness.copy()
    assert {result.partition for result in results if result.outcome is Outcome.FAILED} == {3, 8}
    assert results[3].error == f"t-3: nothing came from the source for {TIMES.stall_ms} ms: no route"
    assert harness.source.calls["last_error 3"] == harness.source.calls["last_error 8"] == 1
    assert harness.turns < 100


def test_partition_that_may_not_commit_fails_alone(harness: TaskHarness) -> None:
    harness.target.forbidden = {5}
    results = harness.copy()
    assert {result.partition for result in results if result.outcome is not Outcome.COMPLETE} == {5}
    assert "no Read on the group" in str(results[5].error)


@pytest.mark.parametrize("silent", [{0}, set(range(20))])
def test_task_stops_in_time_and_its_loop_does_not_spin(harness: TaskHarness, silent: set[int]) -> None:
    harness.target.silent = silent
    began = harness.clock.unix_ms()
    results = harness.copy(60_000)
    assert {result.partition for result in results if result.outcome is Outcome.UNFINISHED} == silent
    assert all(result.stuck_since_ms is not None for result in results if result.partition in silent)
    assert began + 60_000 <= harness.clock.unix_ms() <= began + 60_000 + TIMES.request_timeout_ms + 2_000
    assert harness.turns < 1_000
    assert harness.steps < 1_000


def test_steps_of_a_thousand_partitions_are_proportional_to_their_events(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = TaskHarness(1_000, monkeypatch)
    del harness.source.logs[7]  # 999 are done soon; then the task waits for the last one
    results = harness.copy()
    assert Counter(result.outcome for result in results) == {Outcome.COMPLETE: 999, Outcome.FAILED: 1}
    assert harness.steps < 20 * 1_000
    assert harness.turns < 200


def test_idle_partitions_are_not_asked_what_they_want(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was asked ten times a second."""
    followed = TaskHarness(300, monkeypatch)
    followed.end = OPEN_END
    now = followed.clock.now()
    followed.source.later[0] = [(now + 1_000 + 20 * number, made(2 + number)) for number in range(500)]
    asked = 0

    def may_fetch(steering: FetchSteering, copy: CopyHandle, now: int) -> bool:
        nonlocal asked
        asked += 1
        return ask(steering, copy, now)

    ask = FetchSteering._may_fetch
    monkeypatch.setattr(FetchSteering, "_may_fetch", may_fetch)
    followed.copy(12_000)
    assert followed.target.committed[0] == 502
    assert asked < 300 * 8 + 4 * 500


def test_rate_limit_is_waited_for_without_spinning(harness: TaskHarness) -> None:
    size = made(0).size
    began = harness.clock.now()
    results = harness.copy(max_bytes_per_second=10 * size)
    assert {result.outcome for result in results} == {Outcome.COMPLETE}
    assert harness.clock.now() - began >= 1_900, "40 batches at 10 a second, of which 20 come at once"
    assert harness.turns < 500


def change_first_drop_others(record: Record) -> Record | None:
    return record._replace(value=b"changed") if record.offset == 0 else None


def test_a_flow_s_transform_is_applied(harness: TaskHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transform was loaded, but never called: records were copied unchanged."""
    submit = Encoder.submit

    def encoded(self: Encoder, key: Hashable, begin: Callable[[], Steps]) -> Future[ReencodeResult]:
        """The encoder's thread runs in real time, and the task's clock does not wait for it."""
        job = submit(self, key, begin)
        wait([job], 20)
        return job

    monkeypatch.setattr(Encoder, "submit", encoded)
    results = harness.copy(transform=f"{__name__}:change_first_drop_others")
    assert {result.outcome for result in results} == {Outcome.COMPLETE}
    assert all([record.value for record in sent] == [b"changed"] for sent in harness.target.sent.values())
    assert results[0].skipped == {"dropped": 1}


@pytest.mark.parametrize(
    ("held", "after_ms", "wakes"), [(999_999, 10, True), (999_999, 9, False), (100_000, 10, False)]
)
def test_acknowledgement_wakes_the_task_for_a_copy_that_was_refused_room(held: int, after_ms: int, wakes: bool) -> None:
    """If no copy was refused room, or all were asked just now, none waits, and the task is not woken."""
    clock = FakeClock()
    absent: dict[str, None] = dict.fromkeys(("anchors", "offsets", "positions", "origin"))
    lookups, admin = SimpleNamespace(source_state=None), SimpleNamespace(known_leader=None)
    clients = cast("Any", SimpleNamespace(consumer=Source(clock, {}), lookups=lookups, admin=admin, **absent))
    wake_event = threading.Event()
    context = TaskContext(
        clients,
        CopyPolicy(),
        TIMES,
        clock,
        Backoff(100, 1_000, random.Random(1)),
        cast("Any", SimpleNamespace(may_retry=None, is_confirmed=None)),
        NullObserver(),
        buffer_memory=1_000_000,
        max_partition_bytes=1_000,
        lookup_executor=None,
        wake_event=wake_event,
    )
    try:
        context.source_budget.add(held)
        context.source_budget.may_fetch(1_000, 1_000)
        clock.advance(after_ms)
        context.on_batch_answered(cast("Any", SimpleNamespace(awaits_acknowledgement=False)), failed=False)
        assert wake_event.is_set() == wakes
    finally:
        context.workers.close()


@pytest.fixture
def followed(harness: TaskHarness) -> TaskHarness:
    harness.end = OPEN_END
    return harness


def test_followed_partitions_are_copied_until_the_task_stops_and_may_be_idle(followed: TaskHarness) -> None:
    """The task lives many times as long as a source may be silent."""
    began = followed.clock.unix_ms()
    followed.source.later[3] = [(followed.clock.now() + 40_000, made(2))]
    results = followed.copy(60_000)
    assert {(result.outcome, result.error) for result in results} == {(Outcome.COMPLETE, None)}
    assert [result.end for result in results] == [3 if partition == 3 else 2 for partition in range(20)]
    assert followed.target.committed[3] == 3, "the late record is committed"
    assert began + 60_000 <= followed.clock.unix_ms() <= began + 62_000
    assert followed.source.calls["last_responses"] < 60
    assert followed.turns < 1_000
    assert followed.steps < 1_000


def test_progress_at_least_once_is_committed_for_all_partitions_of_a_group_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred partitions get a record at different times, each 2 s; with a commit of its own each, that is 1,000."""
    followed = TaskHarness(100, monkeypatch)
    followed.end = OPEN_END
    now = followed.clock.now()
    for partition in range(100):
        times = range(now + 1_000 + 20 * partition, now + 20_000, 2_000)
        followed.source.later[partition] = [(at_ms, made(2 + number)) for number, at_ms in enumerate(times)]
    followed.copy(20_000)
    commits = followed.target.commit_order
    assert 900 <= len(commits) <= 1_200
    assert len(set(commits)) <= 16 * 22, "(time, group): each is one request"


def test_followed_partition_with_nothing_to_fetch_is_idle(followed: TaskHarness) -> None:
    """This holds before the first record, too: its broker delays the first response until there is one."""
    followed.target.committed = dict.fromkeys(range(20), 2)
    results = followed.copy(60_000)
    for result in results:
        assert result.timeline is not None
        assert result.timeline.phases["idle"] >= 55_000, result.timeline.phases
        assert result.timeline.phases.get("fetching", 0) == 0
        assert (result.timeline.lag_before, result.timeline.lag_after) == (0, 0)


def test_followed_source_without_responses_fails_only_its_partition(followed: TaskHarness) -> None:
    followed.source.dead = {7}
    results = followed.copy(60_000)
    failed = [result for result in results if result.outcome is not Outcome.COMPLETE]
    assert [result.partition for result in failed] == [7]
    assert failed[0].error == f"t-7: nothing came from the source for {TIMES.stall_ms} ms: no route"
    assert failed[0].end == 2, "what was copied stays committed"
    assert 2 <= failed[0].retries <= 4


def test_followed_source_that_recovers_is_followed_again(followed: TaskHarness) -> None:
    now = followed.clock.now()
    followed.source.dead, followed.source.back_ms = {7}, now + 20_000
    followed.source.later[7] = [(now + 50_000, made(2))]
    results = followed.copy(60_000)
    assert {(result.outcome, result.error) for result in results} == {(Outcome.COMPLETE, None)}
    assert (results[7].end, results[7].records) == (3, 3)
    assert results[7].retries


def test_task_without_a_run_does_not_poll_control(harness: TaskHarness) -> None:
    harness.copy()
    assert harness.lookups.control_reads == 0
