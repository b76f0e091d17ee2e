"""What a flow's status topic has, and the records that a driver writes there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.alignment.sync_state import SyncState
from mirror.client import TopicPartition
from mirror.groups.summary import GroupsSummary, HeldGroup
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.progress import status_values
from mirror.relay.progress.status_topic import StatusNews, StatusRecord
from mirror.relay.progress.status_values import RunState, StatusKind
from mirror.relay.progress.stored_record import plain, record_of
from mirror.spark.ledger.attempt_results import AttemptResult
from mirror.spark.ledger.copy_rate import CopyRate
from mirror.spark.ledger.partition_health import PartitionHealth
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.status_table import (
    ERRORS_KEPT_MS as WEEK_MS,
)
from mirror.spark.ledger.status_table import (
    LastError,
    Records,
    Reported,
    StatusTable,
    Turn,
    error_records,
    health_records,
    last_error,
    obstacle_records,
    outdated_records,
    turn_records,
)
from mirror.spark.ledger.topic_obstacles import Obstacle
from mirror.spark.planning.limits import Backlog, apply_limits
from mirror.telemetry.evidence import (
    MAX_PARTITIONS,
    MAX_REMARKS,
    MAX_TOPICS,
    LastRehearsal,
    LastVerification,
    RehearsalBlocker,
    VerifiedPartition,
)
from mirror.telemetry.metrics.metric_store import MetricStore
from mirror.telemetry.metrics.record_results import record_task
from mirror.telemetry.task_report import MeasuredTasks
from mirror.telemetry.traces.ids import period_id
from tests.relay.progress.test_status_values import KEY, PLAIN, REPORT, TASK
from tests.spark.ledger.test_results import result
from tests.spark.planning.test_packing import backlog
from tests.spark.planning.test_range_planner import flow
from tests.telemetry.results import a_task
from tests.telemetry.test_evidence import DIFFERENT, rehearsed, verified

if TYPE_CHECKING:
    pass

TRACE = str(period_id("f", "run", 1))
FAILING = PartitionHealth(None, 1_700_000_000_000, TRACE, TRACE)
TPS = [TopicPartition("t", number) for number in range(4)]


def news(records: Records, *, again: bool = False) -> StatusNews:
    """As a follower reads what was written."""
    read = []
    for key, value in records.items():
        parsed = status_values.parse_key(str(key).encode())
        assert parsed == key
        stored = None if value is None else status_values.decode(key, status_values.encode(value), "f")
        assert (stored is None) == (value is None)
        read.append(StatusRecord(key, stored, 5))
    return StatusNews(again=again, records=read)


def test_a_table_has_the_last_value_of_each_key_and_nothing_of_before_if_it_was_read_again() -> None:
    table, run = StatusTable(), RunState(run="r", since_ms=1, state="running")
    found = [
        StatusRecord(status_values.task_key(5), TASK, 1),
        StatusRecord(KEY, replace(REPORT, sequence=1), 1),
        StatusRecord(KEY, REPORT, 2),
        StatusRecord(status_values.RUN, run, 3),
    ]
    table.apply(StatusNews(again=True, records=found))
    assert (table.tasks, table.partitions, table.run) == ({5: TASK}, {KEY.tp: Reported(REPORT, 2)}, run)
    table.apply(news({status_values.task_key(5): None, status_values.RUN: None}))
    assert (table.tasks, table.run) == ({}, None)
    assert table.partitions
    table.apply(StatusNews(again=True, records=[]))
    assert table == StatusTable()


def test_lost_report_folders_take_no_partition_s_turns() -> None:
    """Ten partitions that fail, with the larger backlogs, and ten healthy ones: 200 turns, each run on another host."""
    one, table = flow(max_partitions_in_parallel=2), StatusTable()
    sizes = [1_000] * 10 + [10] * 10
    progress_ms = [0] * 10 + [1] * 10
    healthy = 0
    for run in range(1, 101):
        turns = table.turns
        backlogs = [
            Backlog(backlog(number, size), size, max(turns.get(TopicPartition("t", number), 0), progress_ms[number]))
            for number, size in enumerate(sizes)
        ]
        chosen = apply_limits(one, backlogs)
        plan = Plan(flow="f", tasks=[chosen.ranges], results_without_task=chosen.waiting)
        table.apply(news(turn_records(table.turns, plan, 1_000 * run)))
        copied = [range_.partition for range_ in chosen.ranges if range_.partition >= 10]
        healthy += len(copied)
        progress_ms = [1_000 * run if number in copied else ms for number, ms in enumerate(progress_ms)]
    assert healthy == 50


def test_turns_of_partitions_that_the_flow_has_no_more_are_deleted() -> None:
    idle = replace(backlog(1, 5), end=10)
    plan = Plan(flow="f", tasks=[[backlog(0, 5), idle]], results_without_task=[result(2, Outcome.UNFINISHED)])
    assert turn_records(TPS, plan, 7) == {
        status_values.partition_key(StatusKind.TURN, TPS[0]): Turn(7),
        status_values.partition_key(StatusKind.TURN, TPS[3]): None,
    }


def plan_of(*ranges: int, **waiting: RangeResult) -> Plan:
    return Plan(flow="f", tasks=[[backlog(one, 5) for one in ranges]], results_without_task=list(waiting.values()))


def test_a_partition_fails_until_its_copy_is_complete_or_it_has_gone() -> None:
    table, before = StatusTable(), dict.fromkeys(TPS, FAILING)
    everything = plan_of(0, 1, 2, 3)
    table.apply(news(health_records({}, before, everything, [], 7)))
    assert table.health == before
    plan = plan_of(0, 2, a=result(1, Outcome.UNFINISHED))
    later = str(period_id("f", "run", 2))
    worse = PartitionHealth(1_700_000_000_001, 1_700_000_000_002, later, later)
    table.apply(news(health_records(table.health, {TPS[2]: worse}, plan, [AttemptResult(0, 0, result(0))], 7)))
    kept = replace(worse, since_ms=FAILING.since_ms, trace=TRACE)
    assert table.health == {TPS[1]: FAILING, TPS[2]: kept}, "0 recovered, 1 waits for its turn, 3 has gone"
    assert health_records(table.health, {TPS[2]: worse}, plan, [], 7) == {}, "nothing has changed"
    table.put(health_records(table.health, {}, plan_of(2, a=result(1)), [], 7))
    assert table.health == {TPS[2]: kept}, "1 has nothing to copy any more, and of 2 nothing is known"


def test_a_partition_that_begins_to_fail_in_a_live_task_fails_from_then_on() -> None:
    new = PartitionHealth(None, None, TRACE, TRACE)
    records = health_records({}, {TPS[0]: new}, plan_of(0), [], 1_700_000_000_000)
    table = StatusTable()
    table.apply(news(records))
    assert table.health == {TPS[0]: replace(new, since_ms=1_700_000_000_000)}


def test_reports_of_earlier_runs_and_of_partitions_that_have_gone_are_deleted() -> None:
    table = StatusTable(tasks={0: TASK, 1: replace(TASK, run="older")})
    targets = [TopicPartition("a.t", number) for number in range(3)]
    table.partitions = {target: Reported(replace(REPORT, target=target), 1) for target in targets}
    records = outdated_records(table, plan_of(0, a=result(1)), "r", 1)
    assert {str(key): value for key, value in records.items()} == {"task/1": None, "part/a.t/2": None}


def test_obstacles_are_written_when_they_change_and_deleted_when_they_have_gone() -> None:
    table = StatusTable()
    first = {"t": Obstacle("refused", 2), "u": Obstacle("x" * 9_000)}
    table.apply(news(obstacle_records({}, first)))
    assert table.obstacles == {"t": Obstacle("refused", 2), "u": Obstacle("x" * 1_000)}
    assert obstacle_records(table.obstacles, first) == {}
    table.apply(news(obstacle_records(table.obstacles, {"t": Obstacle("still refused")})))
    assert table.obstacles == {"t": Obstacle("still refused")}


VERIFIED = LastVerification.of(verified(*DIFFERENT), 1_700_000_000_000, None)
REHEARSED = LastRehearsal.of(rehearsed())


def test_the_records_of_the_driver_and_of_commands_are_read_as_they_were_written() -> None:
    groups = GroupsSummary(
        total=3, in_step=2, by_reason={"refused": 1}, held=(HeldGroup(group="g", reasons=("x",), detail="", age_ms=5),)
    )
    sync = SyncState(not_local=4).after("topics", {"cannot-be-copied": 1}, 0, 7)
    rate = CopyRate(10_000_000, 2.5, 9)
    table = StatusTable()
    table.apply(news({status_values.VERIFICATION: VERIFIED, status_values.REHEARSAL: REHEARSED}))
    table.apply(news({status_values.GROUPS: groups, status_values.SYNC: sync, status_values.RATE: rate}))
    assert (table.evidence.verification, table.evidence.rehearsal) == (VERIFIED, REHEARSED)
    assert (table.groups, table.sync, table.rate) == (groups, sync, rate)
    table.apply(news({status_values.VERIFICATION: None, status_values.GROUPS: None}))
    assert (table.verify, table.groups) == (None, None)


def test_evidence_has_a_bounded_size() -> None:
    rows = tuple(
        VerifiedPartition(topic="t" * 249, partition=number, outcome="different", remarks="\u00e4" * MAX_REMARKS)
        for number in range(MAX_PARTITIONS)
    )
    topics = {"t" * 240 + str(number): number for number in range(MAX_TOPICS)}
    assert len(status_values.encode(replace(VERIFIED, partitions=rows, equal_to=topics))) < 900_000
    obstacle = RehearsalBlocker(kind="acl", name="n" * 900, reason="r" * 900, action="a" * 900)
    assert len(status_values.encode(replace(REHEARSED, blockers=(obstacle,) * MAX_PARTITIONS))) < 900_000


def failed(line: str, *, time_ms: int = 1_000, partition: int = 3) -> StatusRecord:
    target = TopicPartition("a.t", partition)
    found = replace(REPORT, target=target, result=result(partition, Outcome.FAILED, error=line))
    return StatusRecord(status_values.partition_key(StatusKind.PARTITION, target), found, time_ms)


def test_the_last_error_of_a_partition_is_kept_when_it_has_recovered() -> None:
    table, key = StatusTable(), status_values.partition_key(StatusKind.ERROR, TPS[3])
    table.apply(news(error_records({}, [failed("x" * 9_000)])))
    assert table.errors == {TPS[3]: LastError("x" * 1_000, 1_000)}
    assert error_records(table.errors, [failed("x" * 9_000, time_ms=2_000)]) == {}, "it is the same one"
    well = failed("")
    assert error_records(table.errors, [well._replace(value=replace(REPORT, result=result(3)))]) == {}
    assert error_records(table.errors, [failed("old", time_ms=999)]) == {}, "it was read again"
    later = LastError("y", 700_000)
    assert error_records(table.errors, [failed("y", time_ms=700_000)]) == {key: later}
    again = error_records(table.errors, [failed("x" * 9_000, time_ms=700_000)])
    assert again == {key: LastError("x" * 1_000, 700_000)}, "it goes on"


def test_an_expiry_is_an_error_also_if_its_copy_has_recovered() -> None:
    expiry = {"time_ms": 7, "phase": "commit", "cause": "no answer", "last_error": "timed out"}
    found = result(0, expiries=[{**expiry, "time_ms": 1}, expiry])
    assert last_error(found, 9) == LastError("expired (commit, no answer): timed out", 7)
    waiting = replace(found, outcome=Outcome.UNFINISHED, error="it waited for the source")
    assert last_error(waiting, 9) == LastError("it waited for the source", 9), "it has recovered from the expiry"
    assert last_error(replace(waiting, error=None), 9) == last_error(found, 9)
    assert last_error(result(0), 9) is None
    assert last_error(result(0, Outcome.FAILED, error="no"), 9) == LastError("no", 9)


def test_old_errors_and_those_of_partitions_that_have_gone_are_forgotten() -> None:
    table = StatusTable(
        errors={TPS[0]: LastError("old", 1), TPS[1]: LastError("new", WEEK_MS), TPS[2]: LastError("", 1)}
    )
    found = outdated_records(table, plan_of(0, 1), "r", WEEK_MS + 2)
    assert {str(key) for key in found} == {"error/t/0", "error/t/2"}


def test_what_tasks_measure_is_read_as_it_was_written_and_that_of_earlier_runs_is_deleted() -> None:
    table, reports = StatusTable(), {0: a_task(0, run="r"), 7: a_task(7, run="r", dropped={"traces": 1})}
    table.apply(news({status_values.measured_key(number): report for number, report in reports.items()}))
    assert table.measured == reports
    assert outdated_records(table, plan_of(0), "r", 1) == {}
    assert {str(key) for key in outdated_records(table, plan_of(0), "next", 1)} == {"measured/0", "measured/7"}


@pytest.mark.parametrize("value", [VERIFIED, REHEARSED, a_task(), FAILING, Turn(1), Obstacle("x"), LastError("x", 1)])
@given(data=st.data())
@settings(max_examples=25)
def test_any_value_is_taken_as_one_to_compute_with_or_none(value: object, data: st.DataObject) -> None:
    place: Any = json.loads(json.dumps(plain(value)))
    stored = place
    while True:
        name = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[name], dict | list) or not place[name] or data.draw(st.booleans()):
            place[name] = data.draw(PLAIN)
            break
        place = place[name]
    keys = [status_values.VERIFICATION, status_values.REHEARSAL, status_values.obstacle_key("t")]
    keys += [status_values.measured_key(0)]
    keys += [
        status_values.partition_key(kind, TPS[0]) for kind in (StatusKind.TURN, StatusKind.HEALTH, StatusKind.ERROR)
    ]
    table = StatusTable()
    for key in keys:
        read = status_values.decode(key, json.dumps({"v": 1, **stored}).encode(), "f")
        table.apply(StatusNews(again=False, records=[StatusRecord(key, read, 1)]))
    measured, metrics = MeasuredTasks(""), MetricStore()
    for report in table.measured.values():
        if (added := measured.take(report)) is not None:
            record_task(metrics, "f", added)
    verification, rehearsal = table.evidence.verification, table.evidence.rehearsal
    if verification is not None:
        assert sum(verification.outcomes.values()) + sum(verification.equal_to.values()) >= 0
        assert record_of(LastVerification, json.loads(json.dumps(plain(verification)))) == verification
    if rehearsal is not None:
        assert record_of(LastRehearsal, json.loads(json.dumps(plain(rehearsal)))) == rehearsal
    assert all(ms >= 0 for ms in table.turns.values())
    assert all(one.reason.isprintable() for one in table.obstacles.values())
