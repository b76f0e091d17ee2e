"""A stream's epochs, planned one after the other: what each has, when the run is over, what a bad edit does."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from mirror.errors import ConfigError
from mirror.relay.model.ranges import OPEN_END, Outcome, RangeResult
from mirror.relay.progress.control import RunControl
from mirror.runtime.clock import SystemClock
from mirror.spark.datasource import epoch_planner
from mirror.spark.datasource.epoch_planner import EpochPlanner
from mirror.spark.datasource.options import FlowOptions
from mirror.spark.datasource.rows import ROW_SCHEMA
from mirror.spark.datasource.stream_reader import RangesStreamReader
from mirror.spark.heartbeat import Heartbeat
from mirror.spark.ledger.attempts import Attempt
from mirror.spark.ledger.ledger import MAX_EPOCHS, Ledger
from mirror.spark.ledger.obstacles import Obstacle, TargetTopics
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.results import MAX_EXPIRIES, StreamTotals, join_results
from mirror.spark.run_control import RunControlClient
from tests.polling import eventually
from tests.spark.fakes import Admin, Cluster
from tests.spark.flow_harness import FlowHarness, configuration, use_fakes

CONFIG = configuration("orders")


class EpochsHarness(FlowHarness):
    """A flow with a ledger."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "orders")
        self.a.add_topic("orders", [10, 20])
        self.b.add_topic("a.orders", [0, 0])
        self.ledger = Ledger.open(folder, "f", "run-1")
        self.options = FlowOptions(self.config, "f", self.ledger.path, run="run-1")
        self.epochs = EpochPlanner(self.options, self.ledger, SystemClock())

    def orders(self, run: str = "") -> RunControlClient:
        return RunControlClient(Admin({"bootstrap.servers": "b:1"}), "f", run)  # type: ignore[arg-type]  # what is used of it

    def reader(self) -> RangesStreamReader:
        return RangesStreamReader(self.options)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EpochsHarness:
    use_fakes(tmp_path, monkeypatch, epoch_planner)
    return EpochsHarness(tmp_path)


def answer(ledger: Ledger, plan: Plan, outcome: Outcome = Outcome.COMPLETE, **more: object) -> None:
    """All ranges of ``plan`` ended so."""
    results = [RangeResult.initial(one, one.start, outcome) for one in plan.ranges]
    for one in results:
        for name, value in more.items():
            setattr(one, name, value)
    ledger.write_attempts([Attempt(0, 0, one) for one in results], plan.epoch)


def test_every_partition_is_followed_even_without_new_records(site: EpochsHarness) -> None:
    site.a.add_topic("orders", [0, 20])
    plan = site.epochs.plan(1, drains=False)
    assert plan is not None
    assert [(one.partition, one.start, one.end) for one in sorted(plan.ranges, key=lambda one: one.partition)] == [
        (0, 0, OPEN_END),
        (1, 0, OPEN_END),
    ]
    assert (plan.epoch, plan.ends, plan.lags) == (1, {"orders": 20}, {"orders": 20})
    assert site.ledger.plan(1) == plan


def test_the_first_plan_claims_the_flow_and_names_the_run_that_it_fences(site: EpochsHarness) -> None:
    assert site.orders("run-0").claim() is None
    site.epochs.plan(1, drains=False)
    told = site.orders().read()
    assert told is not None
    assert told.run == "run-1"
    (line,) = site.ledger.messages()
    assert line.startswith("took over from run run-0 on ")


def test_a_query_without_a_driver_script_sends_its_own_heartbeat_and_end(
    site: EpochsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook. With a script, that says it."""
    monkeypatch.setattr("mirror.spark.heartbeat.HEARTBEAT_INTERVAL_MS", 5)
    monkeypatch.setattr("mirror.spark.datasource.epoch_planner.Heartbeat", partial(Heartbeat, every_ms=5))
    epochs = EpochPlanner(replace(site.options, run=""), site.ledger, SystemClock())
    epochs.plan(1, drains=False)
    began = site.orders().read()
    assert began is not None
    assert began.run == epochs.run

    def goes_on() -> bool:
        told = site.orders().read()
        return told is not None and told.seen_ms > began.seen_ms

    eventually(goes_on, what="a sign of life")
    epochs.close()
    told = site.orders().read()
    assert told is not None
    assert told.ended
    site.orders("run-1").claim()
    with_script = site.orders().read()
    site.epochs.plan(2, drains=False)
    site.epochs.close()
    assert site.orders().read() == with_script


def test_the_first_plan_does_not_claim_the_flow_from_a_later_run(site: EpochsHarness) -> None:
    site.orders("run-1").claim()  # as the driver's script does
    site.orders("run-2").claim()
    assert site.epochs.plan(1, drains=False) is None
    told = site.orders().read()
    assert told is not None
    assert told.run == "run-2"


@pytest.mark.parametrize("by", ["stop", "another run"])
def test_a_stopped_or_fenced_run_plans_nothing_more(site: EpochsHarness, by: str) -> None:
    assert site.epochs.plan(1, drains=False) is not None
    if by == "stop":
        assert site.orders().stop() is not None
    else:
        site.orders("run-2").claim()
    assert site.epochs.plan(2, drains=False) is None
    assert site.ledger.last_planned_epoch() == 1


def test_a_flow_that_another_run_had_and_ended_is_claimed_again(site: EpochsHarness) -> None:
    site.epochs.plan(1, drains=False)
    site.orders("run-2").claim()
    site.orders("run-2").end()
    assert site.epochs.plan(2, drains=False) is not None
    told = site.orders().read()
    assert told is not None
    assert (told.run, told.stop) == ("run-1", False)


def test_a_control_record_that_the_target_forgot_is_committed_again(site: EpochsHarness) -> None:
    site.epochs.plan(1, drains=False)
    with site.b.change() as state:
        state["groups"].clear()
    assert site.epochs.plan(2, drains=False) is not None
    assert site.orders().stop() is not None
    assert site.epochs.plan(3, drains=False) is None


def test_an_ended_run_is_neither_stopped_nor_fenced(site: EpochsHarness) -> None:
    mine = site.orders("run-1")
    mine.claim()
    mine.end()
    assert site.orders().stop() is None
    assert site.orders("run-2").claim() is None


def test_a_run_does_not_mark_another_run_as_ended(site: EpochsHarness) -> None:
    site.orders("run-1").claim()
    site.orders("run-2").claim()
    site.orders("run-1").end()
    site.orders("run-1").request_new_plan(7)
    told = site.orders().read()
    assert told is not None
    assert (told.run, told.ended, told.epoch) == ("run-2", False, 0)


def test_an_invalid_edit_is_reported_once_and_the_last_valid_configuration_is_kept(site: EpochsHarness) -> None:
    site.config.write_text(CONFIG + "epoch-ms = 5000\n")
    site.epochs.plan(1, drains=False)
    site.config.write_text(CONFIG + "epoch-ms = 7000\nnonsense = 1\n")
    assert site.epochs.plan(2, drains=False) is not None
    assert site.epochs.epoch_ms == 5_000
    site.epochs.plan(2, drains=False)
    (line,) = site.ledger.messages()
    assert "nonsense" in line
    assert line.endswith("until this is corrected, the flow keeps its previous configuration")
    _, flow = site.options.load_live()
    assert flow.epoch_ms == 5_000, "for the tasks, too"
    site.config.write_text(CONFIG + "epoch-ms = 9000\n")
    site.epochs.plan(3, drains=False)
    assert site.epochs.epoch_ms == 9_000


@pytest.mark.parametrize("edit", [('source = "a"', 'source = "c"'), ('target = "b"', 'target = "c"')])
def test_a_running_flow_keeps_its_source_target_and_naming(site: EpochsHarness, edit: tuple[str, str]) -> None:
    """Offsets of one cluster mean nothing in another: the planner and the tasks must not differ about it."""
    Cluster("c:1", site.folder).make().add_topic("orders", [1]).add_topic("a.orders", [0, 0])
    site.epochs.plan(1, drains=False)
    site.config.write_text(CONFIG.replace(*edit) + '[clusters.c]\n"bootstrap.servers" = "c:1"\n')
    plan = site.epochs.plan(2, drains=False)
    assert plan is not None
    assert {one.source_cluster_id for one in plan.ranges} == {"id-a:1"}
    _, flow = site.options.load_live()
    assert (flow.source, flow.target) == ("a", "b")
    (line,) = site.ledger.messages()
    assert "stop it, and start it again" in line


@pytest.mark.parametrize(("by", "kept"), [("auto", True), ("sequences", True), ("transactions", False)])
def test_a_running_flow_by_sequences_keeps_its_transform(site: EpochsHarness, by: str, kept: bool) -> None:
    """The next attempts compare what was appended with what they would write."""
    config = CONFIG + f'exactly-once-by = "{by}"\n'
    site.config.write_text(config)
    site.epochs.plan(1, drains=False)
    site.config.write_text(config + 'transform = "json:dumps"\n')
    site.epochs.plan(2, drains=False)
    _, flow = site.options.load_live()
    assert flow.transform == ("" if kept else "json:dumps")
    assert any("stop the stream" in line for line in site.ledger.messages()) == kept


def test_a_leader_that_does_not_answer_delays_no_other_partition(site: EpochsHarness) -> None:
    site.a.set_moods({"silent": '["orders/1"]'})
    plan = site.epochs.plan(1, drains=False)
    assert plan is not None
    assert [one.partition for one in plan.ranges] == [0]
    (line,) = site.ledger.messages()
    assert "orders-1: the source partition does not answer: orders-1: no answer" in line


def test_latest_means_all_of_a_partition_that_appeared_while_the_flow_ran(site: EpochsHarness) -> None:
    site.config.write_text(CONFIG + 'start = "latest"\n')
    site.epochs.plan(1, drains=False)
    with site.a.change() as state:
        state["topics"]["orders"]["partitions"].append({"earliest": 0, "end": 5, "replicas": 3, "leader": 1})
    plan = site.epochs.plan(2, drains=False)
    assert plan is not None
    assert {one.partition: one.start for one in plan.ranges} == {0: 10, 1: 20, 2: 0}


def test_a_source_that_has_not_reached_from_yet_has_no_start_position(site: EpochsHarness) -> None:
    site.config.write_text(CONFIG + "from = 15\n")
    plan = site.epochs.plan(1, drains=False)
    assert plan is not None
    assert [(one.partition, one.start) for one in plan.ranges] == [(1, 15)]


def test_a_configuration_that_never_was_valid_is_an_error(site: EpochsHarness) -> None:
    site.config.write_text(CONFIG + "nonsense = 1\n")
    with pytest.raises(ConfigError, match="nonsense"):
        site.epochs.plan(1, drains=False)


def test_the_live_configuration_is_in_no_file_and_ends_with_the_run(site: EpochsHarness) -> None:
    """A stream that is killed can delete nothing."""
    secret = "m4rker-of-a-password"
    keys = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": secret}
    lines = "".join(f'\n"{key}" = "{value}"' for key, value in keys.items())
    site.config.write_text(CONFIG.replace('"a:1"', f'"a:1"{lines}'))
    site.epochs.plan(1, drains=False)
    site.config.write_text(CONFIG + "nonsense = 1\n")
    config, _ = site.options.load_live()
    assert config.clusters["a"].client_options()["sasl.password"] == secret
    kept = [path for path in site.folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert kept == []
    site.epochs.close()
    with pytest.raises(ConfigError, match="nonsense"):
        site.options.load_live()
    assert not list(site.ledger.path.glob("config*"))


def test_a_stuck_partition_keeps_its_age_over_epochs_and_runs(site: EpochsHarness) -> None:
    plan = site.epochs.plan(1, drains=False)
    assert plan is not None
    answer(site.ledger, plan, Outcome.UNFINISHED, stuck_since_ms=77)
    again = site.epochs.plan(2, drains=False)
    assert again is not None
    assert {one.stuck_since_ms for one in again.ranges} == {77}
    later = Ledger.open(site.folder, "f", "run-2")
    restarted = EpochPlanner(FlowOptions(site.config, "f", later.path, run="run-2"), later, SystemClock()).plan(
        1, drains=False
    )
    assert restarted is not None
    assert {one.stuck_since_ms for one in restarted.ranges} == {77}


def test_a_drain_ends_at_the_first_plans_source_ends_and_does_not_retry_failures(site: EpochsHarness) -> None:
    first = site.epochs.plan(1, drains=True)
    assert first is not None
    assert {(one.partition, one.end) for one in first.ranges} == {(0, 10), (1, 20)}
    answer(site.ledger, first)
    with site.a.change() as state:
        for partition in state["topics"]["orders"]["partitions"]:
            partition["end"] += 5
    second = site.epochs.plan(2, drains=True)
    assert second is not None
    assert {(one.partition, one.end) for one in second.ranges} == {(0, 10), (1, 20)}, "nothing is committed yet"
    answer(site.ledger, second, Outcome.EXPIRED)
    third = site.epochs.plan(3, drains=True)
    assert third is not None
    assert third.ranges == []


def test_a_drain_with_limits_continues_beside_given_up_partitions(site: EpochsHarness) -> None:
    """The limit chooses of what is left, not of what was given up."""
    site.config.write_text(CONFIG + "max-partitions-in-parallel = 1\n")
    tried: list[int] = []
    for epoch in range(1, 4):
        plan = site.epochs.plan(epoch, drains=True)
        assert plan is not None
        tried += [one.partition for one in plan.ranges]
        answer(site.ledger, plan, Outcome.EXPIRED)
    assert sorted(tried) == [0, 1]


def test_a_drain_in_which_nothing_can_be_copied_reports_why(site: EpochsHarness) -> None:
    with site.a.change() as state:
        for partition in state["topics"]["orders"]["partitions"]:
            partition["leader"] = -1
    plan = site.epochs.plan(1, drains=True)
    assert plan is not None
    assert plan.ranges == []
    assert site.ledger.last_completed_epoch() == 1
    assert site.ledger.plan(1) == plan
    assert {one.outcome for one in plan.results_without_task} == {Outcome.FAILED}


def test_a_drain_never_reports_a_given_up_partition_as_complete(site: EpochsHarness) -> None:
    """Seen: of epochs 1 (expired) and 2 (nothing left to try) the second had the last word, "complete"."""
    first = site.epochs.plan(1, drains=True)
    assert first is not None
    answer(site.ledger, first, Outcome.EXPIRED, error="no leader")
    second = site.epochs.plan(2, drains=True)
    assert second is not None
    totals = StreamTotals()
    for plan in (first, second):
        totals.add(join_results(plan, site.ledger.attempts(plan.epoch)))
    assert {(one.outcome, one.error) for one in totals.results()} == {(Outcome.EXPIRED, "no leader")}


def test_a_drain_keeps_partitions_that_a_later_attempt_completed(site: EpochsHarness) -> None:
    first = site.epochs.plan(1, drains=True)
    assert first is not None
    outcomes = (Outcome.COMPLETE, Outcome.FAILED)
    attempts = [
        Attempt(0, number, RangeResult.initial(one, one.start, outcome))
        for one in first.ranges
        for number, outcome in zip((1, 0), outcomes, strict=True)
    ]
    site.ledger.write_attempts(attempts, 1)
    second = site.epochs.plan(2, drains=True)
    assert second is not None
    assert len(second.ranges) == 2


def test_a_partition_that_cannot_be_copied_at_the_start_of_a_drain_stays_given_up(site: EpochsHarness) -> None:
    site.ledger.write_targets(
        TargetTopics(copyable={"orders": 1}, obstacles={"orders": Obstacle("no more partitions", 1)})
    )
    first = site.epochs.plan(1, drains=True)
    assert first is not None
    assert [one.partition for one in first.ranges] == [0]
    answer(site.ledger, first)
    site.ledger.write_targets(TargetTopics(copyable={"orders": 2}, version=2))
    second = site.epochs.plan(2, drains=True)
    assert second is not None
    assert [(one.partition, one.outcome, one.error) for one in second.results_without_task] == [
        (1, Outcome.FAILED, "no more partitions")
    ]


def test_latest_means_all_of_a_topic_that_was_not_prepared_yet_when_the_first_plan_saw_it(site: EpochsHarness) -> None:
    site.config.write_text(CONFIG.replace('["orders"]', '["orders.*"]') + 'start = "latest"\n')
    site.ledger.write_targets(TargetTopics(copyable={"orders": 2}))
    site.a.add_topic("orders-new", [5])
    site.epochs.plan(1, drains=False)
    site.b.add_topic("a.orders-new", [0])
    site.ledger.write_targets(TargetTopics(copyable={"orders": 2, "orders-new": 1}, version=2))
    plan = site.epochs.plan(2, drains=False)
    assert plan is not None
    assert {(one.topic, one.partition): one.start for one in plan.ranges} == {
        ("orders", 0): 10,
        ("orders", 1): 20,
        ("orders-new", 0): 0,
    }


def test_latest_means_all_of_a_partition_that_was_not_prepared_yet_when_the_first_plan_saw_it(
    site: EpochsHarness,
) -> None:
    site.config.write_text(CONFIG + 'start = "latest"\n')
    site.ledger.write_targets(TargetTopics(copyable={"orders": 1}))
    site.epochs.plan(1, drains=False)
    site.ledger.write_targets(TargetTopics(copyable={"orders": 2}, version=2))
    plan = site.epochs.plan(2, drains=False)
    assert plan is not None
    assert {one.partition: one.start for one in plan.ranges} == {0: 10, 1: 0}


def test_latest_stays_the_end_for_partitions_that_were_refused_when_the_stream_began(site: EpochsHarness) -> None:
    site.config.write_text(CONFIG + 'start = "latest"\n')
    refused = {"orders": Obstacle("no more partitions", first_partition=1)}
    site.ledger.write_targets(TargetTopics(copyable={"orders": 1}, obstacles=refused))
    site.epochs.plan(1, drains=False)
    site.ledger.write_targets(TargetTopics(copyable={"orders": 2}, version=2))
    plan = site.epochs.plan(2, drains=False)
    assert plan is not None
    assert {one.partition: one.start for one in plan.ranges} == {0: 10, 1: 20}


def test_a_stream_that_can_copy_nothing_writes_the_reason_into_the_ledger(site: EpochsHarness) -> None:
    reason = "no such topic can be created"
    site.ledger.write_targets(TargetTopics(copyable={"orders": 0}, obstacles={"orders": Obstacle(reason)}))
    assert site.reader().latestOffset({"epoch": 0}, None) == {"epoch": 0}  # type: ignore[arg-type]  # there is no limit
    assert site.ledger.last_planned_epoch() is None, "no epoch has begun"
    idle = site.ledger.idle_plan()
    assert idle is not None
    assert {(one.partition, one.outcome, one.error) for one in idle.results_without_task} == {
        (0, Outcome.FAILED, reason),
        (1, Outcome.FAILED, reason),
    }
    written_ns = site.ledger.idle_plan_ns()
    assert site.epochs.plan(1, drains=False) is not None
    assert site.epochs.plan(1, drains=False) is not None
    changed_ns = site.ledger.idle_plan_ns()
    assert written_ns is not None
    assert changed_ns is not None
    site.epochs.plan(1, drains=False)
    assert site.ledger.idle_plan_ns() == changed_ns, "nothing is written where nothing is new"
    site.ledger.write_targets(TargetTopics(copyable={"orders": 2}, version=2))
    site.epochs.plan(1, drains=False)
    assert (site.ledger.last_planned_epoch(), site.ledger.idle_plan(), site.ledger.idle_plan_ns()) == (1, None, None)


# --- the reader


def test_epochs_follow_each_other_and_their_offset_has_the_lag(site: EpochsHarness) -> None:
    reader = site.reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)  # type: ignore[arg-type]  # there is no limit
    assert end == {"epoch": 1, "ends": {"orders": 30}, "lag": 30, "not planned": 0}
    assert json.loads(json.dumps(end)) == end
    assert reader.reportLatestOffset() == end
    rows = [row for partition in reader.partitions(start, end) for row in reader.read(partition)]
    assert len(rows) == 2
    assert reader.latestOffset(end, None)["epoch"] == 2  # type: ignore[arg-type]


def test_the_next_epoch_is_planned_early_and_has_the_last_epochs_results(site: EpochsHarness) -> None:
    site.config.write_text(CONFIG + "epoch-ms = 1000\n")
    reader = site.reader()
    end = reader.latestOffset({"epoch": 0}, None)  # type: ignore[arg-type]
    reader.partitions({"epoch": 0}, end)
    eventually(lambda: reader._early is not None and reader._early._plan is not None)
    assert site.ledger.last_planned_epoch() == 1, "it is not begun yet"
    first = site.ledger.plan(1)
    assert first is not None
    answer(site.ledger, first, Outcome.UNFINISHED, stuck_since_ms=77, records=1)
    site.a.set_moods({"list_offsets": "asked again"})
    end = reader.latestOffset(end, None)  # type: ignore[arg-type]
    assert end["epoch"] == 2
    ranges = [row for partition in reader.partitions({"epoch": 1}, end) for row in reader.read(partition)]
    stuck = [field.name for field in ROW_SCHEMA.fields].index("stuck_since_ms")
    assert {row[stuck] for row in ranges} == {77}
    reader.stop()


def test_an_early_plan_is_replaced_if_a_target_topic_was_prepared_since(site: EpochsHarness) -> None:
    site.config.write_text(CONFIG + "epoch-ms = 1000\n")
    site.ledger.write_targets(TargetTopics(copyable={"orders": 1}))
    reader = site.reader()
    end = reader.latestOffset({"epoch": 0}, None)  # type: ignore[arg-type]
    reader.partitions({"epoch": 0}, end)
    eventually(lambda: reader._early is not None and reader._early._plan is not None)
    site.ledger.write_targets(TargetTopics(copyable={"orders": 2}, version=2))
    assert reader.latestOffset(end, None)["epoch"] == 2  # type: ignore[arg-type]
    plan = site.ledger.plan(2)
    assert plan is not None
    assert {one.partition for one in plan.ranges} == {0, 1}
    reader.stop()


def test_an_early_plan_is_dropped_once_the_run_is_over(site: EpochsHarness) -> None:
    site.config.write_text(CONFIG + "epoch-ms = 1000\n")
    reader = site.reader()
    end = reader.latestOffset({"epoch": 0}, None)  # type: ignore[arg-type]
    reader.partitions({"epoch": 0}, end)
    eventually(lambda: reader._early is not None and reader._early._plan is not None)
    assert site.ledger.last_planned_epoch() == 1, "it is not begun yet"
    site.orders().stop()
    assert reader.latestOffset(end, None) == end  # type: ignore[arg-type]
    reader.stop()


def test_an_epoch_from_before_a_restart_is_planned_again(site: EpochsHarness) -> None:
    reader = site.reader()
    rows = [row for partition in reader.partitions({"epoch": 3}, {"epoch": 4}) for row in reader.read(partition)]
    assert len(rows) == 2


def test_a_cluster_that_does_not_answer_is_retried_with_backoff_and_fails_a_drain(site: EpochsHarness) -> None:
    site.a.set_moods({"list_offsets": "no Describe"})
    reader = site.reader()
    assert reader.latestOffset({"epoch": 0}, None) == {"epoch": 0}  # type: ignore[arg-type]
    error = site.ledger.error()
    assert error is not None
    assert "no Describe" in error.line
    site.a.set_moods({})
    assert reader.latestOffset({"epoch": 0}, None) == {"epoch": 0}, "not at once"  # type: ignore[arg-type]
    reader._not_before_ms = 0
    assert reader.latestOffset({"epoch": 0}, None)["epoch"] == 1  # type: ignore[arg-type]
    assert site.ledger.error() is None
    first, last = site.ledger.messages()
    assert "no Describe" in first
    assert last == "epoch 1 is planned, after 1 failed attempts"
    assert site.ledger.messages(1) == [last]
    site.a.set_moods({"list_offsets": "no Describe"})
    drain = site.reader()
    drain.prepareForTriggerAvailableNow()
    with pytest.raises(Exception, match="no Describe"):
        drain.latestOffset({"epoch": 0}, None)  # type: ignore[arg-type]


def test_epochs_that_copy_nothing_follow_each_other_with_backoff(site: EpochsHarness) -> None:
    reader = site.reader()
    end = reader.latestOffset({"epoch": 0}, None)  # type: ignore[arg-type]
    plan = site.ledger.plan(1)
    assert plan is not None
    answer(site.ledger, plan, Outcome.FAILED)
    assert reader.latestOffset(end, None) == end, "not at once"  # type: ignore[arg-type]
    assert site.ledger.last_planned_epoch() == 1
    reader._not_before_ms = 0
    assert reader.latestOffset(end, None)["epoch"] == 2  # type: ignore[arg-type]


# --- ledger and totals


def test_the_ledger_keeps_only_the_last_epochs(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, "f", "1")
    assert (ledger.last_planned_epoch(), ledger.last_completed_epoch(), ledger.previous_run()) == (None, None, None)
    for epoch in (1, 2, MAX_EPOCHS + 1):
        plan = Plan(flow="f", tasks=[], results_without_task=[], epoch=epoch)
        ledger.write_plan(plan)
        ledger.write_attempts([], epoch)
    assert (ledger.last_planned_epoch(), ledger.last_completed_epoch()) == (MAX_EPOCHS + 1, MAX_EPOCHS + 1)
    assert ledger.plan(1) is None
    assert ledger.plan(2) is not None
    older = Ledger.open(tmp_path, "f", "2").previous_run()
    assert older is not None
    assert older.path == ledger.path


def result(epoch: int, **more: object) -> RangeResult:
    values = {"flow": "f", "topic": "t", "target_topic": "a.t", "partition": 0, "start": epoch, "end": epoch + 1}
    return RangeResult(**{**values, "records": 1, "bytes": 10, "outcome": Outcome.COMPLETE, **more})  # type: ignore[arg-type]


def test_totals_drop_a_removed_partition_that_was_never_copied() -> None:
    totals = StreamTotals()
    idle = result(0, records=0, partition=1, outcome=Outcome.FAILED, error="its name is too long")
    totals.add([result(0), idle])
    totals.add([result(1, topic="other"), idle])
    assert [(one.topic, one.partition) for one in totals.results()] == [("other", 0), ("t", 0), ("t", 1)]
    totals.add([result(2)])
    assert [(one.topic, one.partition) for one in totals.results()] == [("other", 0), ("t", 0)]


def test_totals_add_up_and_the_last_epoch_sets_the_outcome() -> None:
    totals = StreamTotals()
    for epoch in range(MAX_EXPIRIES + 2):
        totals.add(
            [result(epoch, skipped={"control": 1}, expiries=[{"at": epoch}], outcome=Outcome.EXPIRED, error="x")]
        )
    totals.add([result(99, skipped={"empty": 2})])
    (one,) = totals.results()
    assert (one.start, one.end, one.records, one.bytes) == (0, 100, MAX_EXPIRIES + 3, 10 * (MAX_EXPIRIES + 3))
    assert one.skipped == {"control": MAX_EXPIRIES + 2, "empty": 2}
    assert (one.outcome, one.error) == (Outcome.COMPLETE, None)
    assert [each["at"] for each in one.expiries] == list(range(2, MAX_EXPIRIES + 2))


def test_a_heartbeat_in_flight_does_not_undo_the_end_of_the_query(
    site: EpochsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal has read the orders and is about to write them as the query ends."""
    under_way, ended = threading.Event(), threading.Event()
    goes_on, end = RunControlClient.renew_from, RunControlClient.end

    def held_up(orders: RunControlClient, read: RunControl) -> None:
        under_way.set()
        ended.wait(0.5)
        goes_on(orders, read)

    def end_first(orders: RunControlClient) -> None:
        end(orders)
        ended.set()

    monkeypatch.setattr("mirror.spark.datasource.epoch_planner.Heartbeat", partial(Heartbeat, every_ms=5))
    epochs = EpochPlanner(replace(site.options, run=""), site.ledger, SystemClock())
    epochs.plan(1, drains=False)
    monkeypatch.setattr(RunControlClient, "renew_from", held_up)
    monkeypatch.setattr(RunControlClient, "end", end_first)
    assert under_way.wait(10)
    epochs.close()
    found = site.orders().read()
    assert found is not None
    assert found.ended
