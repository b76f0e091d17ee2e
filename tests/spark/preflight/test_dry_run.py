"""What a run would do: counted, explained, and nothing changed by looking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.client import Admin, OffsetAndMetadata, Outcomes, TopicPartition
from mirror.config.models import FlowConfig
from mirror.errors import AuthorizationFailed
from mirror.relay.batches.topic_config import TopicConfig
from mirror.relay.origin.records import LogKey, Registry, began_record, log_end_records
from mirror.relay.progress.committed import group_of
from mirror.relay.progress.status_topic import StatusNews
from mirror.spark.ledger import status_table
from mirror.spark.ledger.copy_rate import CopyRate
from mirror.spark.ledger.status_table import StatusTable
from mirror.spark.preflight import flow_registries
from mirror.spark.preflight.dry_run import Action, CopyPath, FlowForecast, copy_path, forecast
from mirror.spark.preflight.target_topics import prepare_topics
from mirror.wire.api import Api
from tests.fakes.control import Action as BrokerAction
from tests.spark import fakes
from tests.spark.fakes import NOW_MS
from tests.spark.planning.planner_harness import PlannerHarness
from tests.spark.planning.test_range_planner import flow
from tests.spark.preflight.test_flow_checks import config_of

if TYPE_CHECKING:
    from collections.abc import Iterable

HOUR_MS = 3_600_000


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> PlannerHarness:
    monkeypatch.setattr(status_table, "StatusFollower", fakes.SilentFollower)
    return PlannerHarness()


def look(pair: PlannerHarness, one: FlowConfig, *, wall_ms: int = NOW_MS) -> FlowForecast:
    before = [pair.a.state(), pair.b.state()]
    found = forecast(config_of(one), one, pair.sides(), wall_ms=wall_ms)
    assert [pair.a.state(), pair.b.state()] == before, "to look changes nothing"
    return found


def run(pair: PlannerHarness, one: FlowConfig) -> None:
    prepare_topics(one, pair.sides())
    fakes.copy_ranges(
        pair.plan(one).ranges,
        source_options={},
        target_options={"bootstrap.servers": "b:1"},
        policy=one.copy_policy(),
    )


def actions(found: FlowForecast) -> dict[int, Action]:
    return {each.partition: each.action for each in found.partitions}


def test_before_the_first_run_everything_is_to_copy(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [10, 0], configs={"retention.ms": "5"})
    found = look(pair, flow(replication_factor=3))
    assert [(each.start, each.end, each.records, each.bytes) for each in found.partitions] == [
        (0, 10, 10, 1000),
        (0, 0, 0, 0),
    ]
    assert actions(found) == {0: Action.COPY, 1: Action.NOTHING}
    assert (found.records, found.bytes, found.to_do) == (10, 1000, True)
    made, *own = found.drift.changes
    assert made == "on b: topic a.orders is created: partitions 2, replicas 3, retention.ms = 5"
    for line, name in zip(own, ("mirror-progress.f", "mirror-offsets.f", "mirror-progress.f.status"), strict=True):
        assert line.startswith(f"on b: topic {name}.internal is created: partitions 1, replicas 3, cleanup.policy")
    assert found.warnings == []


def test_after_a_run_nothing_is_to_do_until_records_arrive(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [10, 5])
    run(pair, flow())
    found = look(pair, flow())
    assert actions(found) == {0: Action.NOTHING, 1: Action.NOTHING}
    assert (found.drift.changes, found.records, found.to_do) == ([], 0, False)
    old = look(pair, flow(), wall_ms=NOW_MS + 25 * HOUR_MS)
    assert actions(old) == {0: Action.RENEW, 1: Action.RENEW}
    assert not old.to_do, "a run that is due for nothing else need not be made for that"
    with pair.a.change() as state:
        partitions = state["topics"]["orders"]["partitions"]
        partitions[0]["end"] = 12
        partitions.append({"earliest": 0, "end": 0, "replicas": 3, "leader": 1})
    found = look(pair, flow())
    assert (found.records, found.to_do) == (2, True)
    assert found.drift.changes == ["on b: topic a.orders gets 3 partitions (now 2)"]


def test_that_reports_cannot_be_read_is_a_warning(pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them, neither the rate of earlier runs nor whose turn it is are known."""

    class Refused(fakes.SilentFollower):
        def news(self, *_: object) -> StatusNews:
            return StatusNews(again=True, records=[], error=AuthorizationFailed("topic mirror-progress.f.status", 29))

    monkeypatch.setattr(status_table, "StatusFollower", Refused)
    pair.a.add_topic("orders", [10])
    found = look(pair, flow())
    note = "what runs have reported cannot be read, so neither rates nor failures are known: "
    assert found.warnings[0].startswith(f"{note}topic mirror-progress.f.status"), found.warnings


def test_a_start_position_to_commit_is_something_to_do(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [10])
    prepare_topics(flow(), pair.sides())
    found = look(pair, flow(start="latest"))
    assert (actions(found), found.drift.changes, found.to_do) == ({0: Action.BEGIN}, [], True)


def test_partitions_that_would_fail_are_shown_with_their_error(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [10, 10])
    run(pair, flow())
    with pair.a.change() as state:
        state["topics"]["orders"]["partitions"][0] |= {"earliest": 15, "end": 20}
    found = look(pair, flow())
    assert actions(found) == {0: Action.FAIL, 1: Action.NOTHING}
    assert "retention: copied up to offset 10" in str(found.partitions[0].error)
    assert found.to_do
    with pair.a.change() as state:
        state["id"] = "another"
    assert all("other source" in str(each.error) for each in look(pair, flow()).partitions)


def test_progress_that_may_be_lost_is_reported(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [10, 10, 10])
    pair.b.add_topic("a.orders", [5, 0])
    pair.begin("a.orders", 1)
    found = look(pair, flow())
    assert actions(found) == dict.fromkeys(range(3), Action.COPY)
    first, second, third = (each.error for each in found.partitions)
    assert "progress-lost (mirror takeover goes on where MirrorMaker 2 stopped, start-over = true begins" in str(first)
    assert (second, third) == (None, None)
    assert look(pair, flow(start_over=True)).partitions[0].error is None
    waits = look(pair, flow(max_partitions_in_parallel=1)).partitions[1]
    assert waits.error == "its turn comes in the next run: 10 records wait (max-partitions-in-parallel = 1)"
    with pair.a.change() as state:
        state["topics"]["orders"]["partitions"][0]["end"] = 1000
    cut = look(pair, flow(max_bytes_per_run=65_536)).partitions[0]
    assert "progress-lost" in str(cut.error)
    assert "max-bytes-per-run leaves about" in str(cut.error)
    run(pair, flow())
    assert {each.error for each in look(pair, flow()).partitions} == {None}


def test_a_topic_that_may_hold_records_of_others_is_refused_as_a_whole(pair: PlannerHarness) -> None:
    """One line for each topic, with what to do, and nothing is said of what would be changed about it.

    The target's broker returns no records, so that whose they are is not known.
    """
    pair.b.kafka.control.on(Api.FETCH, BrokerAction(silent=True), times=None)
    pair.a.add_topic("orders", [10, 10, 10])
    pair.b.add_topic("a.orders", [5, 0], replicas=1, configs={"max.message.bytes": "1000"})
    found = look(pair, flow())
    assert actions(found) == dict.fromkeys(range(3), Action.FAIL)
    assert not any("a.orders" in line for line in (*found.drift.changes, *found.warnings))
    (reason,) = {each.error for each in found.partitions}
    assert reason is not None
    adopt = "mirror apply --flow f --adopt a.orders"
    for words in ("target topic a.orders holds records", "cannot be read now", adopt, "mirror takeover"):
        assert words in reason


def test_limits_of_the_flow_are_in_the_forecast(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1000, 2000, 10])
    found = look(pair, flow(max_partitions_in_parallel=1, max_bytes_per_run=65_536))
    assert actions(found) == {0: Action.WAIT, 1: Action.COPY, 2: Action.WAIT}
    assert found.records == 655, "what this run would copy"
    assert found.partitions[1].error == "max-bytes-per-run leaves about 1345 records to later runs"
    assert found.partitions[0].records == 1000
    assert "its turn comes" in str(found.partitions[0].error)


def test_sizes_that_brokers_do_not_return_are_unknown(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [10])
    pair.a.set_moods({"log_dirs": "the permission Describe on the cluster is missing"})
    found = look(pair, flow())
    assert (found.partitions[0].bytes, found.bytes, found.seconds) == (None, None, None)


def test_the_time_is_estimated_from_earlier_runs_and_the_flows_limit(
    pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.a.add_topic("orders", [10])
    assert (look(pair, flow()).bytes_per_second, look(pair, flow()).seconds) == (None, None)
    reported = StatusTable(rate=CopyRate(16_000, 2.0, 1))
    monkeypatch.setattr(status_table, "read_status", lambda *_: reported)
    assert (look(pair, flow()).bytes_per_second, look(pair, flow()).seconds) == (8000.0, 13.125)
    limited = look(pair, flow(max_bytes_per_second=2000))
    assert (limited.bytes_per_second, limited.seconds) == (2000.0, 13.5)


def test_the_forecast_has_the_warnings_of_a_run(pair: PlannerHarness) -> None:
    pair.a.add_topic("orders", [1])
    pair.b.add_topic("a.orders", [0], replicas=1, configs={"max.message.bytes": "1000"})
    pair.b.add_topic("mirror-progress.f.internal", [0])
    pair.b.add_topic("mirror-offsets.f.internal", [0], configs={"cleanup.policy": "compact"})
    pair.b.add_topic("mirror-progress.f.status.internal", [0], configs={"cleanup.policy": "compact"})
    found = look(pair, flow())
    assert found.drift.changes == []
    assert found.warnings == prepare_topics(flow(), pair.sides()).warnings
    assert len(found.warnings) == 3


@pytest.mark.parametrize(
    ("keys", "source", "target", "way", "words"),
    [
        ({}, {}, {}, CopyPath.SHALLOW, []),
        ({"compression": "zstd"}, {}, {}, CopyPath.DEEP, ['compression = "zstd"']),
        ({"headers": {"via": "a"}, "transform": "m:f"}, {}, {}, CopyPath.DEEP, ["headers", "transform"]),
        ({}, {"message.timestamp.type": "LogAppendTime"}, {}, CopyPath.DEEP, ["LogAppendTime"]),
        (
            {},
            {"message.timestamp.type": "LogAppendTime"},
            {"message.timestamp.type": "LogAppendTime"},
            CopyPath.SHALLOW,
            [],
        ),
        ({}, {"cleanup.policy": "compact,delete"}, {}, CopyPath.PARTLY_DEEP, ["batches with gaps are re-encoded"]),
        (
            {},
            {},
            {"max.message.bytes": "1000"},
            CopyPath.PARTLY_DEEP,
            ["max.message.bytes = 1000, the source's is 1048588"],
        ),
    ],
)
def test_the_copy_path_follows_from_flow_and_configurations(
    keys: dict[str, object], source: dict[str, str], target: dict[str, str], way: CopyPath, words: list[str]
) -> None:
    found, reasons = copy_path(flow("f", "a", "b", **keys), (TopicConfig.of(source), TopicConfig.of(target)))
    assert found is way
    assert len(reasons) == len(words)
    assert all(word in reason for word, reason in zip(words, reasons, strict=True))


def test_an_unreadable_source_configuration_makes_the_path_unknown() -> None:
    assert copy_path(flow(), None)[0] is CopyPath.UNKNOWN
    assert copy_path(flow(compression="none"), None)[0] is CopyPath.DEEP


def test_topics_that_cannot_be_copied_are_forecast_and_nothing_is_created(pair: PlannerHarness) -> None:
    long = "x" * 249
    pair.a.add_topic("orders", [5]).add_topic(long, [5]).add_topic("u.c", [5]).add_topic("refused", [5])
    pair.a.add_topic("grown", [5, 5])
    pair.b.add_topic("a.u_c", [0]).add_topic("a.grown", [0])
    pair.begin("a.grown")
    pair.b.set_moods({"refused": '{"a.refused": "too many topics", "a.grown": "too many partitions"}'})
    found = look(pair, flow(topics=[".*"]))
    forecasts = {(each.topic, each.partition): each for each in found.partitions}
    assert {key for key, each in forecasts.items() if each.action is Action.COPY} == {("orders", 0), ("grown", 0)}
    for key, words in {
        (long, 0): "would have 251 characters",
        ("u.c", 0): "collides on cluster b with topic a.u_c",
        (
            "refused",
            0,
        ): "target topic a.refused cannot be created: creating topic 'a.refused': POLICY_VIOLATION (error 44)",
        ("grown", 1): "target topic a.grown has 1 partitions and cannot be extended to 2: adding partitions",
    }.items():
        assert forecasts[key].action is Action.FAIL
        assert words in str(forecasts[key].error)
        assert not [reason for reason in forecasts[key].reasons if "DescribeConfigs" in reason]
    assert found.records == 10
    created = [line for line in found.drift.changes if "is created" in line]
    assert len(created) == 4, created
    assert not [line for line in found.drift.changes if "grown" in line]


def test_a_topic_that_is_not_there_gets_no_warning_about_its_configuration(pair: PlannerHarness) -> None:
    """Only its creation shows what the target's brokers have as defaults."""
    pair.a.add_topic("orders", [1], configs={"max.message.bytes": "5000000"})
    assert look(pair, flow(configs="off")).warnings == []
    (line,) = prepare_topics(flow(configs="off"), pair.sides()).warnings
    assert "target topic a.orders: max.message.bytes = " in line


def test_a_replication_factor_above_the_broker_count_is_forecast_for_all_topics(
    pair: PlannerHarness,
) -> None:
    pair.a.add_topic("orders", [5])
    pair.b.set_moods({"brokers": "2"})
    one = flow(replication_factor=3)
    found = look(pair, one)
    (partition,) = found.partitions
    assert partition.action is Action.FAIL
    assert "INVALID_REPLICATION_FACTOR" in str(partition.error)
    assert found.drift.changes == [], "nothing can be created"
    own = ("mirror-progress.f", "mirror-offsets.f", "mirror-progress.f.status")
    for line, name in zip(found.warnings, own, strict=True):
        assert line.startswith(f"topic {name}.internal cannot be prepared")
        assert "INVALID_REPLICATION_FACTOR" in line
    assert found.warnings == prepare_topics(one, pair.sides()).warnings


def test_a_hidden_progress_topic_is_a_warning_as_in_a_run(
    pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.a.add_topic("orders", [5])
    plain = Admin.describe_topics

    def hidden(self: Admin, names: Iterable[str], **options: bool) -> object:
        wanted, topic = list(names), "mirror-progress.f.internal"
        refused = {topic: AuthorizationFailed(f"{topic} may not be seen", 29)} if topic in wanted else {}
        return Outcomes(plain(self, [name for name in wanted if name != topic], **options), refused)

    monkeypatch.setattr(Admin, "describe_topics", hidden)
    found = look(pair, flow())
    assert actions(found) == {0: Action.COPY}
    (line,) = found.warnings
    assert "cannot be prepared" in line
    assert "may not be seen" in line


@pytest.mark.parametrize(("begun_at", "known"), [(None, False), (7, False), (5, True)])
def test_records_whose_writer_is_unknown_fail_beforehand(
    pair: PlannerHarness, monkeypatch: pytest.MonkeyPatch, begun_at: int | None, known: bool
) -> None:
    """``begun_at`` is the log's end when the registry began; None: the run would begin it."""
    pair.a.add_topic("orders", [8], earliest=5)
    topic_id = str(pair.source.describe_topics(["orders"])["orders"].topic_id)
    registry = Registry()
    if begun_at is not None:
        log_ends = log_end_records("one", {LogKey(topic_id, 0): begun_at})
        for record in (*log_ends, began_record("one", 0)):
            registry.add(record.key, record.value)
    monkeypatch.setattr(flow_registries, "read_registry", lambda *_: registry)
    (partition,) = look(pair, flow(naming="identity", origin="local")).partitions
    assert partition.action is (Action.COPY if known else Action.FAIL)
    if not known:
        assert f"orders-0 has records from before mirror-producers.internal began (offsets below {begun_at or 8})" in (
            partition.error or ""
        )
        (partition,) = look(pair, flow(naming="identity", origin="local", origin_from="registry")).partitions
        assert partition.action is Action.COPY


def test_progress_that_has_lost_its_metadata_is_named(pair: PlannerHarness) -> None:
    """As on Tansu, which keeps the offset alone."""
    pair.a.add_topic("orders", [5, 5])
    pair.b.add_topic("a.orders", [0, 0])
    pair.begin("a.orders", 1)
    assert not any("has no metadata" in line for line in look(pair, flow()).warnings)
    tp = TopicPartition("a.orders", 0)
    pair.target.commit_group_offsets(group_of("f", tp), {tp: OffsetAndMetadata(5)})
    (line,) = [one for one in look(pair, flow()).warnings if "has no metadata" in one]
    assert line.startswith("the progress of target partition a.orders-0 has no metadata: ")
