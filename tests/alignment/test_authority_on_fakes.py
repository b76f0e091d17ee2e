"""What whoever administers the source cannot make a flow do to its target. Real clients, brokers in memory.

The rules are those of a flow without further keys. Each test is an attack that has worked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mirror.alignment.differences import KindReport
from mirror.alignment.owned_topics import adopt
from mirror.client import Admin, Producer
from mirror.config.load import load
from mirror.config.models import FlowConfig
from mirror.errors import ConfigError
from mirror.relay.progress.flow_topic import inventory_topic_of
from mirror.spark.ledger.topic_obstacles import TargetTopics
from mirror.spark.planning.snapshot import PlanRequest, make_plan
from mirror.spark.preflight.flow_reconciler import alignment_rules
from mirror.spark.preflight.target_topics import prepare_topics
from tests.alignment.deletions.deletion_site import AdjustableClock
from tests.alignment.site import ConfigRounds
from tests.relay.fake_pair import FLOW, FakePair
from tests.spark.observed import sides_of

_HOUR_MS = 60 * 60 * 1000


class Target:
    """A flow of all topics, what it does on the target, and the copy ``paris.t`` of topic ``t``."""

    def __init__(self, pair: FakePair, stack: ExitStack) -> None:
        self.pair, self.clock, self.naming, self.more = pair, AdjustableClock(), "prefix", ""
        pair.target.add_topic(inventory_topic_of(FLOW))
        self.source, self.target = (
            stack.enter_context(Admin({"bootstrap.servers": each.bootstrap})) for each in (pair.source, pair.target)
        )
        self.alignment = ConfigRounds(
            FLOW, self.source, self.target, pair.target, alignment_rules(self.flow()), self.clock
        )
        stack.callback(self.alignment.close)

    def flow(self) -> FlowConfig:
        text = (
            f'[clusters.paris]\n"bootstrap.servers" = "a:1"\n[clusters.berlin]\n"bootstrap.servers" = "b:1"\n'
            f'[flows.{FLOW}]\nsource = "paris"\ntarget = "berlin"\nnaming = "{self.naming}"\n{self.more}'
        )
        if "\ntopics =" not in text:
            text += 'topics = [".*"]\n'
        return load(Path("mirror.toml"), environ={}, text=text.encode()).flows[FLOW]

    def rounds(self, number: int = 3) -> list[KindReport]:
        """As many as a stream does beside its copies, an hour after one another."""
        self.alignment.rules = alignment_rules(self.flow())
        found = []
        for _ in range(number):
            self.clock.shift_ms += _HOUR_MS
            found.append(self.alignment.round(beside_copies=True))
        return found

    def partitions(self, topic: str) -> int:
        return len(self.pair.target.topics[topic].partitions)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    with ExitStack() as stack:
        yield Target(FakePair(monkeypatch), stack)


def copied(target: Target) -> None:
    """The copy has records and progress, and the inventory has begun."""
    target.pair.write(b"1", b"2", b"3")
    assert target.pair.copy().outcome.value == "complete"
    target.rounds()


def made_again(target: Target) -> None:
    target.pair.source.add_topic("t")


@pytest.mark.parametrize("before", [lambda _: None, made_again])
@pytest.mark.parametrize(
    "config",
    [
        {"retention.ms": "1"},
        {"retention.bytes": "0"},
        {"cleanup.policy": "compact"},
        {"cleanup.policy": "compact,delete"},
        {"delete.retention.ms": "1"},
    ],
)
def test_the_source_does_not_empty_the_copy(
    target: Target, before: Callable[[Target], None], config: dict[str, str]
) -> None:
    copied(target)
    before(target)
    target.pair.source.topics["t"].configs |= config
    reports = target.rounds()
    assert target.pair.target.topics["paris.t"].configs == {}
    held = {one.reason.value for report in reports for one in report.differences if one.reason is not None}
    assert held <= {"over-limit", "source-recreated", "waits-for-restart"}
    assert held
    assert not reports[-1].is_in_step


def configs_after(target: Target, start: str, **configs: str) -> tuple[dict[str | None, str | None], dict[str, str]]:
    """Return why keys are held in the next round, once ``configs`` are set on the source, and the target's values."""
    target.pair.source.topics["t"].configs |= {key.replace("_", "."): value for key, value in configs.items()}
    target.alignment.rules = alignment_rules(target.flow())
    target.clock.shift_ms += _HOUR_MS
    report = target.alignment.round(beside_copies=start == "beside")
    held: dict[str | None, str | None] = {
        one.subject.key: None if one.reason is None else one.reason.value for one in report.differences
    }
    return held, dict(target.pair.target.topics["paris.t"].configs)


_SECOND = "waits-for-second-round"


def test_both_rounds_see_the_same_values(target: Target) -> None:
    target.more = "max-deletions = 1\n"
    copied(target)
    almost_a_day = str(24 * _HOUR_MS - 1)
    assert configs_after(target, "start", retention_ms=almost_a_day) == ({"retention.ms": _SECOND}, {})
    assert configs_after(target, "start", retention_ms="1") == ({"retention.ms": _SECOND}, {})
    both = {"retention.ms": _SECOND, "cleanup.policy": _SECOND}
    assert configs_after(target, "start", cleanup_policy="compact") == (both, {})
    del target.pair.source.topics["t"].configs["cleanup.policy"]
    assert configs_after(target, "start") == ({"retention.ms": None}, {"retention.ms": "1"})
    again = ({"cleanup.policy": _SECOND}, {"retention.ms": "1"})
    assert configs_after(target, "start", cleanup_policy="compact") == again, "a round has seen that it was gone"
    assert configs_after(target, "start")[1] == {"retention.ms": "1", "cleanup.policy": "compact"}


def test_what_was_over_the_limit_for_long_is_not_seen_with_another_value(target: Target) -> None:
    copied(target)
    for _ in range(3):
        assert configs_after(target, "beside", retention_ms="5") == ({"retention.ms": "over-limit"}, {})
    target.more = "max-deletions = 1\n"
    assert configs_after(target, "beside", retention_ms="1") == ({"retention.ms": _SECOND}, {})
    assert configs_after(target, "beside") == ({"retention.ms": None}, {"retention.ms": "1"})


def test_a_stream_that_starts_again_compacts(target: Target) -> None:
    copied(target)
    over, waits = ({"cleanup.policy": reason} for reason in ("over-limit", "waits-for-restart"))
    assert configs_after(target, "beside", cleanup_policy="compact") == (over, {}), "a restart would not be enough"
    target.more = "max-deletions = 1\n"
    target.pair.source.topics["t"].configs.clear()
    configs_after(target, "beside")
    assert configs_after(target, "start", cleanup_policy="compact") == ({"cleanup.policy": _SECOND}, {})
    for _ in range(2):
        assert configs_after(target, "beside") == (waits, {})
    reduced = {"retention.ms": "1"}
    assert configs_after(target, "beside", retention_ms="1") == (waits | {"retention.ms": _SECOND}, {})
    assert configs_after(target, "beside") == (waits | {"retention.ms": None}, reduced)
    assert configs_after(target, "start") == ({"cleanup.policy": None}, reduced | {"cleanup.policy": "compact"})


def test_a_retention_that_keeps_a_day_is_followed_at_once(target: Target) -> None:
    copied(target)
    for days in (30, 3, 1):
        value = str(days * 24 * _HOUR_MS)
        target.pair.source.topics["t"].configs["retention.ms"] = value
        (report,) = target.rounds(1)
        assert (report.changed, target.pair.target.topics["paris.t"].configs) == (1, {"retention.ms": value})


def test_a_limit_of_the_file_is_one_for_each_hour_after_two_rounds(target: Target) -> None:
    target.more = "max-deletions = 1\n"
    copied(target)
    target.pair.source.topics["t"].configs["retention.ms"] = "1"
    reports = target.rounds(2)
    assert [report.changed for report in reports] == [0, 1]
    assert reports[0].differences[0].reason is not None
    assert reports[0].differences[0].reason.value == "waits-for-second-round"
    target.clock.shift_ms -= _HOUR_MS - 20_000
    target.pair.source.topics["t"].configs["retention.bytes"] = "1"
    (held,) = target.rounds(1)[0].held
    assert held.reason is not None
    assert (held.subject.key, held.reason.value) == ("retention.bytes", "over-limit")
    assert held.detail.startswith(
        "1 to delete, 1 deleted within the last hour, and the limit is 1: mirror apply --flow"
    )


def test_a_topic_of_the_target_s_own_is_not_configured(target: Target) -> None:
    target.naming = "identity"
    for cluster in (target.pair.source, target.pair.target):
        cluster.add_topic("payroll")
    target.pair.target.log("payroll").append_values(b"own")
    target.rounds()
    target.pair.source.topics["payroll"].configs |= {"retention.ms": str(48 * _HOUR_MS), "retention.bytes": "1"}
    reports = target.rounds()
    assert target.pair.target.topics["payroll"].configs == {}
    assert [report.changed for report in reports] == [0, 0, 0]
    assert {one.reason for one in reports[-1].differences if one.subject.topic == "payroll"} == {"not-owned"}


def test_a_topic_of_the_target_s_own_gets_no_partitions_and_no_records(target: Target) -> None:
    target.naming = "identity"
    target.pair.target.add_topic("payroll", 1)
    target.pair.target.log("payroll").append_values(b"own")
    target.pair.source.add_topic("payroll", 3)
    for number in range(3):
        target.pair.source.log("payroll", number).append_values(b"FORGED")
    targets = prepare_topics(target.flow(), sides_of(target.source, target.target)).targets
    assert target.partitions("payroll") == 1
    assert "target topic payroll holds records" in targets.obstacles["payroll"].reason
    plan = make_plan(PlanRequest(flow=target.flow(), now_ms=0, targets=targets), sides_of(target.source, target.target))
    assert [one for one in plan.ranges if one.topic == "payroll"] == []
    failed = [one for one in plan.results_without_task if one.topic == "payroll"]
    assert {(one.outcome.value, one.error) for one in failed} == {("failed", targets.obstacles["payroll"].reason)}


def test_an_empty_topic_of_others_is_copied_into_as_it_is_and_not_extended(target: Target) -> None:
    target.naming = "identity"
    for name, has in (("enough", 2), ("few", 1)):
        target.pair.target.add_topic(name, has)
        target.pair.source.add_topic(name, 2)
    targets = prepare_topics(target.flow(), sides_of(target.source, target.target)).targets
    assert (targets.copyable["enough"], targets.copyable["few"]) == (2, 0)
    assert target.partitions("few") == 1
    reason = targets.obstacles["few"].reason
    assert reason.startswith("target topic few has 1 partition, 2 are needed, and nothing shows that it is flow")
    assert f"mirror apply --flow {FLOW} --adopt few" in reason


def test_an_adopted_topic_with_records_needs_start_over_too(target: Target) -> None:
    """As its obstacle and the README say."""
    pair = target.pair
    pair.log().append_values(b"1")
    pair.write(b"1", b"2")
    reason = prepare_topics(target.flow(), sides_of(target.source, target.target)).targets.obstacles["t"].reason
    assert "start-over = true is also needed, which copies all records again, behind those that it holds" in reason
    adopt({"bootstrap.servers": pair.target.bootstrap}, FLOW, target.target.describe_topics(["paris.t"]))
    target.more = "max-deletions = 1\n"
    target.rounds()
    assert configs_after(target, "start", retention_ms="1") == ({"retention.ms": "not-copied"}, {})
    assert str(pair.copy().error).startswith("progress-lost")
    assert pair.copy(start_over=True).error is None
    assert pair.values() == [b"1", b"1", b"2"]


def test_a_topic_that_cannot_be_read_is_copied_into_once_it_can_be(target: Target) -> None:
    leader = target.pair.log().leader
    target.pair.target.move("paris.t", 0, leader + 1)

    def prepared() -> TargetTopics:
        return prepare_topics(target.flow(), sides_of(target.source, target.target)).targets

    assert prepared().copyable["t"] == 0
    reason = prepared().obstacles["t"].reason
    assert reason.startswith("whether target topic paris.t holds records that flow flow has not copied cannot be read")
    assert "the next preparation asks again" in reason
    target.more = "start-over = true\n"
    assert prepared().copyable["t"] == 1
    target.more = ""
    target.pair.target.move("paris.t", 0, leader)
    assert prepared().copyable["t"] == 1


@pytest.mark.parametrize("exists", [False, True])
def test_of_a_heartbeats_topic_with_many_partitions_the_first_is_copied(target: Target, exists: bool) -> None:
    target.more = 'topics = ["t"]\nmirrormaker = { heartbeats = true }\n'
    target.pair.source.add_topic("heartbeats", 3)
    if exists:
        target.pair.target.add_topic("paris.heartbeats", 1)
    targets = prepare_topics(target.flow(), sides_of(target.source, target.target)).targets
    assert target.partitions("paris.heartbeats") == 1
    assert (targets.copyable["heartbeats"], targets.obstacles["heartbeats"].first_partition) == (1, 1)
    plan = make_plan(PlanRequest(flow=target.flow(), now_ms=0, targets=targets), sides_of(target.source, target.target))
    failed = {one.partition for one in plan.results_without_task if one.topic == "heartbeats" and one.error}
    assert failed == {1, 2}


def test_topics_of_brokers_are_never_extended(target: Target) -> None:
    target.naming, target.more = "identity", "topics-exclude = []\n"
    names = ("__consumer_offsets", "__transaction_state", "__share_group_state", "mirror-progress.other.internal")
    for name in names:
        target.pair.target.topics.pop(name, None)
        target.pair.target.add_topic(name, 5)
        target.pair.source.topics.pop(name, None)
        target.pair.source.add_topic(name, 6)
    targets = prepare_topics(target.flow(), sides_of(target.source, target.target)).targets
    assert targets.copyable.keys() & set(names) == set()
    assert {name: target.partitions(name) for name in names} == dict.fromkeys(names, 5)
    for name in names:
        assert target.flow().left_out(name) is not None


@pytest.mark.parametrize(
    "pattern", ["__consumer_offsets", "orders|__transaction_state", r"mirror-progress\\.f\\.internal", "x.internal"]
)
def test_a_file_that_spells_out_such_a_topic_is_not_valid(target: Target, pattern: str) -> None:
    target.more = f'topics = ["{pattern}"]\n'
    if pattern == "x.internal":  # whose copy would be the progress topic of flow x
        text = (
            '[clusters.mirror-progress]\n"bootstrap.servers" = "a:1"\n[clusters.b]\n"bootstrap.servers" = "b:1"\n'
            f'[flows.f]\nsource = "mirror-progress"\ntarget = "b"\ntopics = ["{pattern}"]\n'
        )
        with pytest.raises(ConfigError, match=r"flows.f.topics = .*which no flow writes"):
            load(Path("mirror.toml"), environ={}, text=text.encode())
    else:
        with pytest.raises(ConfigError, match=r"flows.flow.topics = .*which no flow copies"):
            target.flow()


def test_what_costs_the_target_s_brokers_is_not_followed(target: Target) -> None:
    harm = {
        "flush.messages": "1",
        "segment.ms": "1",
        "segment.bytes": "1048576",
        "segment.index.bytes": "2147483647",
        "preallocate": "true",
        "index.interval.bytes": "0",
        "compression.zstd.level": "22",
        "max.compaction.lag.ms": "1",
        "min.cleanable.dirty.ratio": "0",
        "file.delete.delay.ms": "9223372036854775807",
        "max.message.bytes": "2147483647",
        "errors.of.a.vendor": "x",
    }
    rules = alignment_rules(target.flow()).configs
    assert rules.wanted(harm) == {}
    followed = {"segment.ms": "600000", "segment.bytes": "10485760", "max.message.bytes": "134217728"}
    assert rules.wanted(followed) == followed


@pytest.mark.parametrize("mark", [b'[[],"b"]', b'[{},"b"]', b"[[1]]", b"7"])
def test_no_record_of_the_inventory_ends_the_rounds(target: Target, mark: bytes) -> None:
    value = b'{"v":1,"id":"i","created":true,"configs":{"a":' + mark + b"}}"
    with Producer({"bootstrap.servers": target.pair.target.bootstrap}) as producer:
        for key in (
            b'{"topic":"paris.t"}',
            b'{"adopted":"paris.t"}',
            b'{"reduced":"paris.t"}',
            b'{"created":"paris.t"}',
        ):
            producer.send(inventory_topic_of(FLOW), 0, key=key, value=value).result()
    (report,) = target.rounds(1)
    assert report.problems == ()


def test_limits_are_kept_and_the_rest_is_named(target: Target) -> None:
    target.more = "max-new-topics = 3\nmax-partitions = 250\n"
    del target.pair.target.topics["paris.t"], target.pair.source.topics["t"]
    for number in range(5):
        target.pair.source.add_topic(f"junk-{number}", 100)
    targets = prepare_topics(target.flow(), sides_of(target.source, target.target)).targets
    assert sum(name.startswith("paris.junk-") for name in target.pair.target.topics) == 2
    assert targets.obstacles.keys() == {"junk-2", "junk-3", "junk-4"}
    assert "max-new-topics = 3, max-partitions = 250" in targets.obstacles["junk-2"].reason
