"""Findings and advice, for the errors that the relay and Spark's side really write."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from mirror.cluster.types import TopicPartition
from mirror.errors import CorruptBatch, DeliveryCause, DeliveryPhase, RecordRejected
from mirror.relay.batches import reencode as deep
from mirror.relay.batches import refusals, transforms
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.model.timeline import CopyPhase
from mirror.relay.partition import expiries
from mirror.relay.partition.across_attempts.gap_check import SourceGapCheck
from mirror.relay.partition.search import search_results
from mirror.relay.partition.waiting import ENDED
from mirror.relay.progress import target_log
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.gaps import Gap, GapKind, other_topic_text, why_other_source
from mirror.relay.progress.lookup.lookups import ClusterLookups
from mirror.relay.progress.open_transactions import OpenTransaction
from mirror.spark.ledger import results, topic_obstacles
from mirror.spark.ledger.attempt_results import AttemptResult
from mirror.spark.ledger.plan import Plan
from mirror.spark.planning import limits
from mirror.spark.planning.range_planner import NO_LEADER_TEXT
from mirror.spark.preflight.topic_preparation import TopicPreparation
from mirror.telemetry.report import advice, phases
from mirror.telemetry.report.advice import ADVICE, Advice, Level
from mirror.telemetry.report.findings import Finding, find, slowest
from mirror.wire.decode import Record
from mirror.wire.error_codes import broker_error
from tests.spark.planning.test_packing import backlog
from tests.spark.planning.test_range_planner import flow
from tests.telemetry import runs


def written_in(function: Callable[..., object]) -> str:
    """The texts of a function's source, those that go over several lines joined."""
    return re.sub(r'"\s*\n\s*f?"', "", inspect.getsource(function))


def gap(kind: GapKind) -> str:
    found = Gap(kind, 10, 20, 10)
    return f"orders-0: {found}; {found.advice()}"


def bad_timestamp() -> str:
    with pytest.raises(RecordRejected) as caught:
        deep._clamp_or_raise(deep.TimestampRule(0, 10, "fail"), Record(3, 99, None, None, ()), 3)
    return str(caught.value)


ORDERS = TopicPartition("orders", 0)
MARK = target_log.TargetMark(topic_id="t1", end=50)

FAILURES = {
    "failed retention": gap(GapKind.RETENTION),
    "failed truncated": gap(GapKind.TRUNCATED),
    "failed recreated": gap(GapKind.RECREATED),
    "failed progress lost": written_in(ClusterLookups._progress_lost),
    "failed target recreated": str(target_log.recreated_error("f", ORDERS.topic, MARK, "t2")),
    "failed target truncated": str(target_log.truncated_error("f", ORDERS, MARK, 40, None)),
    "failed position unproved": written_in(search_results.unproved_error),
    "failed other topic": other_topic_text("a", "b", "x"),
    "failed target name": next(iter(topic_obstacles.unnameable(flow(), ["x" * 249]).values())).reason,
    "failed target topic": written_in(TopicPreparation._create_missing).partition("self._add_obstacle(")[2],
    "failed source without leader": NO_LEADER_TEXT,
    "failed silent source": written_in(SourceGapCheck.evaluate),
    "failed corrupt": str(expiries.unreadable(CorruptBatch("CRC"), ORDERS, 7)),
    "failed too large": written_in(refusals._too_large),
    "failed segment": str(broker_error(18, "Produce to paris.orders-0")),
    "failed bad timestamp": bad_timestamp(),
    "failed no key": written_in(refusals.handle_rejection).partition("advice =")[2],
    "failed permission": str(broker_error(29, "Produce to paris.orders-0", needs="Write")),
    "failed transform": str(transforms.transform_error(lambda record: record, 7, "failed", ValueError("no"))),
    "failed": "KeyError: 'x'",
}


def only(one: RangeResult) -> Finding:
    (finding,) = find("paris-berlin", [one])
    return finding


@pytest.mark.parametrize("key", FAILURES)
def test_failure_is_recognized_by_its_error(key: str) -> None:
    one = replace(runs.healthy(), outcome=Outcome.FAILED, error=FAILURES[key], gaps={})
    finding = only(one)
    assert finding.key == key
    assert finding.advice.level in {Level.CRITICAL, Level.SERIOUS}
    assert finding.members == [(0, FAILURES[key])]


def test_all_known_failures_are_tested() -> None:
    assert {key for key in ADVICE if key.startswith("failed ")} - FAILURES.keys() == {"failed other source"}


def test_two_deployments_with_one_flow_name_are_recognized() -> None:
    one = backlog(0, 5)
    other = Progress(offset=1, leader_epoch=None, source_cluster_id="cluster-b", topic_id="t1", time_ms=0)
    words = why_other_source(other, "cluster-a", one.topic, one.target_topic)
    for error in (words, f"paris.orders-0: {words}"):
        assert only(replace(runs.idle(), outcome=Outcome.FAILED, error=error)).key == "failed other source"


@pytest.mark.parametrize("cause", DeliveryCause)
def test_cause_of_an_expiry_has_its_own_advice(cause: DeliveryCause) -> None:
    expiries = [runs.expiry(cause, DeliveryPhase.QUEUE, 1, 0, may_have_been_written=cause is DeliveryCause.NO_ANSWER)]
    finding = only(replace(runs.idle(), outcome=Outcome.EXPIRED, error="late", expiries=expiries))
    assert finding.key == f"expired {cause.value}"
    assert finding.advice.title.startswith("Expired:")
    assert (finding.advice.remark == advice.MAYBE_WRITTEN) is (cause is DeliveryCause.NO_ANSWER)


def lost_task() -> RangeResult:
    (one,) = results.join_results(Plan(flow="f", tasks=[[backlog(0, 5)]], results_without_task=[]), [])
    return one


def cut_by_the_limit() -> RangeResult:
    plan = Plan(flow="f", tasks=[[backlog(0, 5)]], results_without_task=[], truncated_at={"t-0": 100})
    done = replace(runs.idle(), topic="t", end=15)
    (one,) = results.join_results(plan, [AttemptResult(0, 0, done)])
    return one


WITHHELD = OpenTransaction(
    topic="orders", partition=0, offset=34, records=12, seen_ms=90_000, since_ms=0, producer_id=7
)
UNFINISHED = Outcome.UNFINISHED


def test_open_transaction_has_the_command_that_aborts_it() -> None:
    finding = only(replace(runs.healthy(), withheld=WITHHELD.to_json()))
    assert (finding.key, finding.advice.level) == ("withheld", Level.WARNING)
    assert "12 records from offset 34 on are not copied" in finding.members[0][1]
    command = finding.advice.steps[-1].command
    assert command.startswith("kafka-transactions.sh --bootstrap-server $SOURCE abort --topic orders --partition 0")
    assert command.endswith("--start-offset 34")


@pytest.mark.parametrize(
    ("one", "keys"),
    [
        (lost_task(), ["unfinished task lost"]),
        (cut_by_the_limit(), ["unfinished limits"]),
        (replace(runs.idle(), outcome=UNFINISHED, error=topic_obstacles.NOT_PREPARED), ["unfinished not prepared"]),
        (
            replace(
                runs.idle(),
                outcome=UNFINISHED,
                error=f"{limits.NEXT_RUN}: 5 records (max-partitions-in-parallel = 2)",
            ),
            ["unfinished limits"],
        ),
        (replace(runs.idle(), outcome=UNFINISHED, error=ENDED), ["unfinished"]),
        (replace(runs.idle(), outcome=UNFINISHED, error=ENDED, stuck_since_ms=1), ["stuck"]),
        (runs.fenced(), ["fenced"]),
        (runs.expired(), ["expired no leader"]),
        (replace(runs.expired(), outcome=Outcome.COMPLETE, error=None), ["behind", "recovered no leader"]),
        (replace(runs.expired(), expiries=[]), ["expired "]),
        (runs.with_a_gap(), ["gaps skipped"]),
        (replace(runs.healthy(), target_losses=[{"kind": "truncated"}]), ["target losses mended"]),
        (replace(runs.healthy(), skipped={"no key": 3, "control": 1}), ["records skipped"]),
        (runs.throttled(), ["throttled"]),
        (runs.healthy(), []),
        (runs.idle(), []),
    ],
)
def test_partition_has_its_findings(one: RangeResult, keys: list[str]) -> None:
    assert [finding.key for finding in find("paris-berlin", [one])] == keys


def test_complete_partition_can_have_findings() -> None:
    one = runs.healthy()
    assert one.timeline is not None
    changes = [{"time_ms": number, "name": "mirror.leader_change"} for number in range(4)]
    one.timeline = replace(one.timeline, events=changes, lag_after=7, late_after_ms=6 * 60_000)
    assert [(each.key, each.members) for each in find("f", [one])] == [
        ("behind", [(0, "7 records behind, the oldest for 6 min")]),
        ("flapping", [(0, "4 changes")]),
    ]


def test_findings_are_grouped_and_sorted_worst_first() -> None:
    partitions = [
        runs.throttled(),
        runs.with_a_gap(),
        runs.fenced(),
        runs.expired(),
        runs.failed_by_a_gap(),
        runs.expired(),
    ]
    found = find("paris-berlin", partitions)
    assert [(each.key, [place for place, _ in each.members]) for each in found] == [
        ("failed retention", [4]),
        ("expired no leader", [3, 5]),
        ("gaps skipped", [1]),
        ("fenced", [2]),
        ("throttled", [0]),
    ]


def test_commands_are_quoted_for_a_shell() -> None:
    one = replace(runs.expired(), target_topic="paris.orders; rm -rf FLOW")
    commands = [step.command for step in only(one).advice.steps]
    assert (
        "kafka-leader-election.sh --bootstrap-server $TARGET --election-type unclean"
        " --topic 'paris.orders; rm -rf FLOW' --partition 3"
    ) in commands
    coordinator = [runs.expiry(DeliveryCause.COORDINATOR, DeliveryPhase.FENCING, 1, 0)]
    steps = only(replace(runs.expired(), expiries=coordinator)).advice.steps
    assert any(step.command.endswith("--transactional-id mirror.paris-berlin.paris.orders.3") for step in steps)


@pytest.mark.parametrize("each", ADVICE.values(), ids=ADVICE)
def test_advice_has_steps_in_whole_sentences(each: Advice) -> None:
    assert each.steps
    for text in (each.meaning, *(step.text for step in each.steps)):
        assert text.endswith((".", ":", "?"))
        assert "  " not in text


def test_slowest_partitions_were_active_longest() -> None:
    partitions = [runs.healthy(0), runs.idle(), runs.expired(), runs.throttled(), runs.failed_by_a_gap()]
    assert slowest(partitions, 3) == [2, 3, 0]
    resting = replace(
        runs.healthy(0), timeline=replace(runs.timeline_of(runs.healthy(0)), phases={"idle": 10**9, "fencing": 5})
    )
    assert slowest([resting, runs.healthy(1)], 2) == [1, 0], "what is caught up is not slow"


def test_slowest_partitions_have_an_explanation() -> None:
    (said,) = phases.explain_slowest("paris-berlin", [runs.healthy(0), runs.healthy(1)])
    assert said.startswith("All 2 spent most time waiting for the target's acknowledgements")
    one = replace(runs.timeline_of(runs.healthy()), phases={"fetching": 70, "producing": 30, "idle": 900})
    (said,) = phases.explain_slowest("paris-berlin", [replace(runs.healthy(), timeline=one)])
    assert said.startswith("It spent most time waiting for the source")
    assert "[flows.paris-berlin.consumer]" in said
    assert phases.explain_slowest("f", [runs.idle()]) == []
    following = replace(one, lag_before=0, lag_after=0)
    assert phases.explain_slowest("f", [replace(runs.healthy(), timeline=following)]) == [], "nothing was to be fetched"


def test_every_phase_has_a_meaning() -> None:
    assert phases.MEANINGS.keys() == {phase.value for phase in CopyPhase}
    assert list(phases.time_by_phase([runs.expired(), runs.idle()])) == [
        "fencing", "fetching", "producing", "aborting", "resting",
    ]  # fmt: skip
