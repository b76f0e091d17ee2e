"""A stream's epochs, planned one after the other: what each has, when the run is over, what a bad edit does."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial

import pytest

from mirror.errors import BrokerError, ConfigError, ConnectionFailed, KafkaError
from mirror.relay.model.ranges import OPEN_END, Outcome
from mirror.relay.origin.records import LogKey, Registry, began_record, log_end_records
from mirror.runtime.clock import SystemClock
from mirror.spark.datasource.epoch_planner import EpochPlanner
from mirror.spark.datasource.options import FlowOptions
from mirror.spark.heartbeat import Heartbeat
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.obstacles import Obstacle, TargetTopics
from mirror.spark.planning import unknown_origin
from mirror.spark.run_control import RunControlClient
from tests.polling import eventually
from tests.spark.epochs_harness import CONFIG, EpochsHarness, answer
from tests.spark.fakes import Admin, Cluster


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


def _without_driver(site: EpochsHarness) -> EpochPlanner:
    """A query in a notebook, which no script of this project has started."""
    return EpochPlanner(replace(site.options, run=""), site.ledger, SystemClock())


def test_the_first_plan_of_a_notebook_claims_the_flow_and_names_the_run_that_it_fences(site: EpochsHarness) -> None:
    assert site.orders("0").claim() is None
    epochs = _without_driver(site)
    epochs.plan(1, drains=False)
    result = site.orders().read()
    assert result is not None
    assert result.run == epochs.run
    (line,) = site.ledger.messages()
    assert line.startswith("took over from run 0 on ")


@pytest.mark.parametrize("before", [None, "run-0", "run-0, ended"])
def test_a_driver_is_the_only_one_that_writes_its_control_record(site: EpochsHarness, before: str | None) -> None:
    if before is not None:
        other = site.orders("run-0")
        other.claim()
        if before.endswith("ended"):
            other.end()
    found = site.orders().read()
    assert site.epochs.plan(1, drains=False) is not None
    assert site.orders().read() == found


def test_a_query_without_a_driver_script_sends_its_own_heartbeat_and_end(
    site: EpochsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook. With a script, that says it."""
    monkeypatch.setattr("mirror.spark.heartbeat.HEARTBEAT_INTERVAL_MS", 5)
    monkeypatch.setattr("mirror.spark.datasource.epoch_planner.Heartbeat", partial(Heartbeat, every_ms=5))
    epochs = _without_driver(site)
    epochs.plan(1, drains=False)
    began = site.orders().read()
    assert began is not None
    assert began.run == epochs.run

    def goes_on() -> bool:
        result = site.orders().read()
        return result is not None and result.seen_ms > began.seen_ms

    eventually(goes_on, what="a sign of life")
    epochs.close()
    result = site.orders().read()
    assert result is not None
    assert result.ended
    site.orders("run-1").claim()
    with_script = site.orders().read()
    site.epochs.plan(2, drains=False)
    site.epochs.close()
    assert site.orders().read() == with_script


def test_the_first_plan_does_not_claim_the_flow_from_a_later_run(site: EpochsHarness) -> None:
    site.orders("run-1").claim()  # as the driver's script does
    site.orders("run-2").claim()
    assert site.epochs.plan(1, drains=False) is None
    result = site.orders().read()
    assert result is not None
    assert result.run == "run-2"


@pytest.mark.parametrize("has_driver", [True, False])
@pytest.mark.parametrize("error", [ConnectionFailed("broker 1 at b:1: refused"), BrokerError("not now", 15)])
def test_a_control_record_that_cannot_be_read_is_reported_by_a_driver_if_the_cluster_is_away(
    site: EpochsHarness, monkeypatch: pytest.MonkeyPatch, error: KafkaError, *, has_driver: bool
) -> None:
    site.a.add_topic("orders", [5])

    def fails(_: RunControlClient) -> None:
        raise error

    monkeypatch.setattr(RunControlClient, "read", fails)
    monkeypatch.setattr(RunControlClient, "sync", fails)
    epochs = site.epochs if has_driver else _without_driver(site)
    with contextlib.suppress(KafkaError):
        epochs.plan(2, drains=False)
    lines = [line for line in site.ledger.messages() if "cannot be read" in line]
    assert len(lines) == (0 if has_driver and isinstance(error, ConnectionFailed) else 1)


@pytest.mark.parametrize("by", ["stop", "another run"])
def test_a_stopped_or_fenced_run_plans_nothing_more(site: EpochsHarness, by: str) -> None:
    site.orders("run-1").claim()
    assert site.epochs.plan(1, drains=False) is not None
    if by == "stop":
        assert site.orders().stop() is not None
    else:
        site.orders("run-2").claim()
    assert site.epochs.plan(2, drains=False) is None
    assert site.ledger.last_planned_epoch() == 1


def test_a_flow_that_another_run_had_and_ended_is_claimed_again(site: EpochsHarness) -> None:
    epochs = _without_driver(site)
    epochs.plan(1, drains=False)
    site.orders("run-2").claim()
    site.orders("run-2").end()
    assert epochs.plan(2, drains=False) is not None
    result = site.orders().read()
    assert result is not None
    assert (result.run, result.stop) == (epochs.run, False)


def test_a_control_record_that_the_target_forgot_is_committed_again(site: EpochsHarness) -> None:
    epochs = _without_driver(site)
    epochs.plan(1, drains=False)
    with site.b.change() as state:
        state["groups"].clear()
    assert epochs.plan(2, drains=False) is not None
    assert site.orders().stop() is not None
    assert epochs.plan(3, drains=False) is None


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
    result = site.orders().read()
    assert result is not None
    assert (result.run, result.ended, result.epoch) == ("run-2", False, 0)


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


def test_a_valid_edit_is_one_line_that_says_what_takes_effect_when(site: EpochsHarness) -> None:
    more = '[flows.g]\nsource = "b"\ntarget = "a"\ntopics = ["x"]\n'
    password = '"bootstrap.servers" = "a:1"', '"bootstrap.servers" = "a:1"\n"client.id" = "secret"'
    site.epochs.plan(1, drains=False)
    for epoch, text in enumerate(
        [
            CONFIG + "# a comment\n",
            CONFIG.replace(*password).replace('topics = ["orders"]', 'topics = ["orders", "clicks"]')
            + "epoch-ms = 9000\nrefresh-ms = 5000\n",
            CONFIG + more,
            CONFIG,
            CONFIG + more,
        ],
        start=2,
    ):
        site.config.write_text(text)
        site.epochs.plan(epoch, drains=False)
        site.epochs.plan(epoch, drains=False)
    read = "its configuration was read again: "
    flows = "flows that are added or removed (g) once the stream is started again"
    back = 'epoch-ms, refresh-ms, clusters.a."client.id" from this epoch on; topics within'
    first, second, third, fourth = site.ledger.messages()
    assert first == f"{read}{back} 5 s (refresh-ms)"
    assert second == f"{read}{back} 60 s (refresh-ms); {flows}"
    assert third == fourth == read + flows


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


def test_a_running_flow_keeps_its_delivery(site: EpochsHarness) -> None:
    """A copy under its lease at least once would commit over the claim of one that is exactly once."""
    site.epochs.plan(1, drains=False)
    site.config.write_text(CONFIG + 'delivery = "at-least-once"\n')
    site.epochs.plan(2, drains=False)
    _, flow = site.options.load_live()
    assert flow.delivery == "exactly-once"
    (line,) = site.ledger.messages()
    assert "flows." in line
    assert "stop it, and start it again" in line


@pytest.mark.parametrize(
    ("key", "was", "wanted"),
    [
        ("origin", '"local"', '"any"'),
        ("origin-from", '"registry"', '"earliest"'),
        ("register-producers", "false", "true"),
    ],
)
def test_a_running_flow_keeps_what_it_copies_and_registers(
    site: EpochsHarness, monkeypatch: pytest.MonkeyPatch, key: str, was: str, wanted: str
) -> None:
    """Its registries were begun before it started."""
    monkeypatch.setattr(unknown_origin, "read_registry", lambda *_: Registry())
    config = CONFIG + ('origin = "local"\n' if key == "origin-from" else "")
    site.config.write_text(f"{config}{key} = {was}\n")
    site.epochs.plan(1, drains=False)
    _, before = site.options.load_live()
    site.config.write_text(f"{config}{key} = {wanted}\n")
    site.epochs.plan(2, drains=False)
    assert site.options.load_live()[1] == before
    (line,) = site.ledger.messages()
    assert f"flows.f.{key} = {wanted}: was {was} when the stream began: stop it, and start it again" in line


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


def test_heartbeats_are_not_turned_on_while_the_stream_runs(site: EpochsHarness) -> None:
    """The driver writes them since its start, and with identity a copied topic would change its name."""
    site.config.write_text(CONFIG)
    site.epochs.plan(1, drains=False)
    site.config.write_text(CONFIG + "[flows.f.mirrormaker]\nheartbeats = true\n")
    site.epochs.plan(2, drains=False)
    (line,) = site.ledger.messages()
    assert "flows.f.mirrormaker = a table: was another when the stream began: stop it, and start it again" in line
    assert not site.options.load_live()[1].mirrormaker.heartbeats


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


def test_a_partition_of_records_of_unknown_origin_fails_in_its_plan(
    site: EpochsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream says why at once, and not only when the epoch ends; what the registry shows is copied."""
    text = site.config.read_text()
    site.config.write_text(text + 'naming = "identity"\norigin = "local"\n')
    site.b.add_topic("orders", [0, 0])
    topic_id = str(Admin({"bootstrap.servers": "a:1"}).describe_topics(["orders"])["orders"].topic_id)
    registry = Registry()
    for record in (*log_end_records("one", {LogKey(topic_id, 1): 5}), began_record("one", 0)):
        registry.add(record.key, record.value)
    monkeypatch.setattr(unknown_origin, "read_registry", lambda *_: registry)
    plan = site.epochs.plan(1, drains=False)
    assert plan is not None
    (failed,) = plan.results_without_task
    assert ([one.partition for one in plan.ranges], failed.partition, failed.outcome) == ([0], 1, Outcome.FAILED)
    (line,) = site.ledger.messages()
    assert line.startswith("1 partitions cannot be copied, such as orders-1: origin-unknown: orders-1 has records from")
    site.config.write_text(text + 'naming = "identity"\norigin = "local"\norigin-from = "earliest"\n')
    plan = EpochPlanner(site.options, site.ledger, SystemClock()).plan(2, drains=False)
    assert plan is not None
    assert sorted(one.partition for one in plan.ranges) == [0, 1]
