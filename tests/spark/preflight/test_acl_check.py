"""Permissions that a flow lacks, by what its clusters report: what refuses it, what is only said, and what is not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mirror.client import AclOperation, TopicPartition
from mirror.relay.partition.writers.takeover import transactional_id
from mirror.relay.progress.committed import SHARDS, lazy_group_of
from mirror.spark.preflight.acl_check import (
    FlowPermissions,
    MissingPermissions,
    groups_to_check,
    ids_to_check,
    missing_permissions,
)
from mirror.spark.preflight.flow_checks import FlowsRefused, check_flows
from mirror.spark.preflight.permission_lines import NO_OPERATIONS, Operations, TopicPermissions
from tests.spark import fakes
from tests.spark.planning.test_range_planner import flow
from tests.spark.preflight.test_flow_checks import config_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mirror.config.models import FlowConfig

ALL = frozenset(AclOperation)
READ, WRITE, ALTER = AclOperation.READ, AclOperation.WRITE, AclOperation.ALTER
DESCRIBE, CONFIGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS
NOTES, OFFSETS, STATUS = "mirror-progress.f.internal", "mirror-offsets.f.internal", "mirror-progress.f.status.internal"
HIDDEN = "--operation Describe --operation Write --operation Read --operation DescribeConfigs --operation Create"
SOURCE = {"orders": TopicPermissions(2, ALL), "clicks": TopicPermissions(1, ALL)}
OWN = dict.fromkeys((NOTES, OFFSETS, STATUS), TopicPermissions(1, ALL))
TARGET = {"a.orders": TopicPermissions(2, ALL), "a.clicks": TopicPermissions(1, ALL), **OWN}
GROUPS = {"mirror.f.3": ALL, "mirror.f.7": ALL, "mirror.f.orders": ALL}
IDS = {"mirror.f.a.orders.0": frozenset({DESCRIBE}), "mirror.f.a.clicks.0": frozenset({DESCRIBE})}
EVERYTHING = FlowPermissions(source=SOURCE, target=TARGET, groups=GROUPS, ids=IDS)
FLOW = flow(topics=["orders", "clicks"], exactly_once_by="transactions")


def topics(there: Mapping[str, TopicPermissions], missing: AclOperation, *names: str) -> dict[str, TopicPermissions]:
    return {name: replace(one, operations=ALL - {missing}) if name in names else one for name, one in there.items()}


def only_problem(seen: FlowPermissions) -> str:
    found = missing_permissions(FLOW, seen)
    (line,) = found.problems
    assert found.warnings == []
    assert line.startswith("flow f: ")
    return line


def only_warning(seen: FlowPermissions) -> str:
    found = missing_permissions(FLOW, seen)
    (line,) = found.warnings
    assert found.problems == []
    return line


def test_all_permissions_granted_gives_no_lines() -> None:
    assert missing_permissions(FLOW, EVERYTHING) == MissingPermissions()


def test_permissions_that_brokers_do_not_return_give_no_lines() -> None:
    assert missing_permissions(FLOW, FlowPermissions()) == MissingPermissions()
    unknown = {name: TopicPermissions(one.partitions, None) for name, one in {**SOURCE, **TARGET}.items()}
    assert missing_permissions(FLOW, FlowPermissions(source=unknown, target=unknown)) == MissingPermissions()


# --- the source's topics


def test_unreadable_source_topics_are_named_in_a_warning() -> None:
    line = only_warning(replace(EVERYTHING, source=topics(SOURCE, READ, "clicks")))
    assert line == (
        "the permission Read on topic clicks of cluster a is missing: their records are not copied; the flow's other"
        " topics are; grant to this client's user: kafka-acls --add --allow-principal User:... --operation Read"
        " --topic clicks"
    )


def test_a_flow_that_can_read_none_of_its_topics_is_refused() -> None:
    line = only_problem(replace(EVERYTHING, source=topics(SOURCE, READ, *SOURCE)))
    assert "the permission Read on topics clicks, orders of cluster a is missing: nothing can be copied" in line
    assert line.endswith("--operation Read --topic clicks --topic orders")


def test_creation_needs_describe_configs_on_the_source_topic() -> None:
    hidden = replace(EVERYTHING, source=topics(SOURCE, CONFIGS, "clicks"))
    assert missing_permissions(FLOW, hidden) == MissingPermissions(), "for those that are there they are only compared"
    new = replace(hidden, target={**TARGET, "a.clicks": None})
    assert "the permission DescribeConfigs on topic clicks of cluster a is missing" in only_warning(new)
    every = FlowPermissions(
        source=topics(SOURCE, CONFIGS, *SOURCE), target={**TARGET, "a.clicks": None, "a.orders": None}
    )
    assert "DescribeConfigs on topics clicks, orders of cluster a is missing" in only_problem(every)


# --- heartbeats

BEATING = flow(topics=["orders", "clicks"], exactly_once_by="transactions", mirrormaker={"heartbeats": True})
HEARTBEATS = {"heartbeats": TopicPermissions(1, ALL)}
ALL_OF_BEATING = replace(EVERYTHING, heartbeats=HEARTBEATS, target={**TARGET, "a.heartbeats": TopicPermissions(1, ALL)})


@pytest.mark.parametrize("missing", [WRITE, READ])
def test_heartbeats_that_cannot_be_written_or_copied_are_a_warning(missing: AclOperation) -> None:
    assert missing_permissions(BEATING, ALL_OF_BEATING) == MissingPermissions()
    source = missing_permissions(BEATING, replace(ALL_OF_BEATING, heartbeats=topics(HEARTBEATS, missing, *HEARTBEATS)))
    name = "Write" if missing is WRITE else "Read"
    assert source.problems == []
    (line,) = source.warnings
    assert line == (
        f"the permission {name} on topic heartbeats of cluster a is missing: heartbeats are not written and copied;"
        f" grant to this client's user: kafka-acls --add --allow-principal User:... --operation {name}"
        " --topic heartbeats"
    )
    lacking = {**ALL_OF_BEATING.target, "a.heartbeats": TopicPermissions(1, ALL - {missing})}
    target = missing_permissions(BEATING, replace(ALL_OF_BEATING, target=lacking))
    assert target.problems == []
    (line,) = target.warnings
    assert f"{name} on topic a.heartbeats of cluster b is missing: heartbeats are not copied;" in line


def test_hidden_heartbeats_need_all_that_creation_needs() -> None:
    hidden = replace(ALL_OF_BEATING, heartbeats={"heartbeats": TopicPermissions(0, NO_OPERATIONS)})
    (line,) = missing_permissions(BEATING, hidden).warnings
    assert (
        "--operation Describe --operation Write --operation Read --operation DescribeConfigs --operation Create" in line
    )


def test_selected_heartbeats_are_checked_once() -> None:
    """As a topic that the flow copies anyway, and as one that it writes to."""
    both = TopicPermissions(1, ALL - {READ, WRITE})
    selected = replace(ALL_OF_BEATING, source={**SOURCE, "heartbeats": both}, heartbeats={"heartbeats": both})
    lines = missing_permissions(BEATING, selected).warnings
    assert [line.split(" of cluster")[0] for line in lines] == [
        "the permission Read on topic heartbeats",
        "the permission Write on topic heartbeats",
    ]


# --- the target's topics


@pytest.mark.parametrize("missing", [WRITE, READ])
def test_unwritable_target_topics_are_a_warning_or_refuse_the_flow(missing: AclOperation) -> None:
    some = topics(TARGET, missing, "a.clicks")
    word = missing.name.title()
    assert (
        f"the permission {word} on topic a.clicks of cluster b is missing: nothing is copied into them"
        in only_warning(replace(EVERYTHING, target=some))
    )
    line = only_problem(replace(EVERYTHING, target=topics(TARGET, missing, "a.clicks", "a.orders")))
    assert f"the permission {word} on topics a.clicks, a.orders of cluster b is missing: nothing can be copied" in line
    new = replace(EVERYTHING, target={**some, "a.orders": None})
    assert len(missing_permissions(FLOW, new).warnings) == 1, "what may be done with the other is seen once it is there"


def test_a_hidden_target_topic_is_named_with_all_operations_to_grant() -> None:
    line = only_warning(replace(EVERYTHING, target={**TARGET, "a.clicks": TopicPermissions(0, NO_OPERATIONS)}))
    assert "the permission Describe on topic a.clicks of cluster b is missing: they cannot be prepared" in line
    assert line.endswith(f"{HIDDEN} --topic a.clicks")


def test_a_topic_that_may_have_to_be_created_needs_create() -> None:
    """Brokers hide whether it exists."""
    line = only_problem(replace(EVERYTHING, target={**TARGET, NOTES: TopicPermissions(0, NO_OPERATIONS)}))
    assert line.endswith(f"{HIDDEN} --topic {NOTES}")
    seen = only_warning(replace(EVERYTHING, target=topics(TARGET, CONFIGS, "a.orders")))
    assert "Create" not in seen, "it is there"


def test_target_topics_need_describe_configs() -> None:
    line = only_warning(replace(EVERYTHING, target=topics(TARGET, CONFIGS, "a.orders")))
    assert "the permission DescribeConfigs on topic a.orders of cluster b is missing" in line
    assert "the flow does not start" in only_problem(replace(EVERYTHING, target=topics(TARGET, CONFIGS, *TARGET)))


def test_alter_is_needed_if_partitions_are_to_be_added() -> None:
    fixed = replace(EVERYTHING, target=topics(TARGET, ALTER, "a.orders"))
    assert missing_permissions(FLOW, fixed) == MissingPermissions()
    grown = replace(fixed, source={**SOURCE, "orders": TopicPermissions(3, ALL)})
    assert "the permission Alter on topic a.orders of cluster b is missing" in only_warning(grown)


def test_the_progress_topic_needs_read_and_warns_without_write() -> None:
    unread = only_problem(replace(EVERYTHING, target=topics(TARGET, READ, NOTES)))
    assert f"the permission Read on topic {NOTES} of cluster b is missing: no partition can start" in unread
    unwritten = only_warning(replace(EVERYTHING, target=topics(TARGET, WRITE, NOTES)))
    assert f"the permission Write on topic {NOTES} of cluster b is missing: progress that" in unwritten
    assert missing_permissions(FLOW, replace(EVERYTHING, target={**TARGET, NOTES: None})) == MissingPermissions()


@pytest.mark.parametrize(("missing", "name"), [(READ, "Read"), (WRITE, "Write")])
def test_the_offset_topic_warns_without_read_or_write(missing: AclOperation, name: str) -> None:
    line = only_warning(replace(EVERYTHING, target=topics(TARGET, missing, OFFSETS)))
    assert f"the permission {name} on topic {OFFSETS} of cluster b is missing: offsets cannot be translated" in line
    assert missing_permissions(FLOW, replace(EVERYTHING, target={**TARGET, OFFSETS: None})) == MissingPermissions()


@pytest.mark.parametrize(("missing", "name"), [(READ, "Read"), (WRITE, "Write")])
def test_the_status_topic_warns_without_read_or_write(missing: AclOperation, name: str) -> None:
    line = only_warning(replace(EVERYTHING, target=topics(TARGET, missing, STATUS)))
    assert f"the permission {name} on topic {STATUS} of cluster b is missing: other hosts do not see" in line
    assert missing_permissions(FLOW, replace(EVERYTHING, target={**TARGET, STATUS: None})) == MissingPermissions()


# --- groups and transactional ids


def test_groups_are_named_once_by_their_prefix() -> None:
    none = only_problem(replace(EVERYTHING, groups=dict.fromkeys(GROUPS, NO_OPERATIONS)))
    assert "the permission Describe on groups with the prefix mirror.f. of cluster b is missing" in none
    grant = "--operation Describe --operation Read --group mirror.f. --resource-pattern-type prefixed"
    assert none.endswith(grant), "Read may be missing as well, and does not show"
    unread = only_problem(replace(EVERYTHING, groups={**GROUPS, "mirror.f.3": ALL - {READ}}))
    assert "the permission Read on groups with the prefix mirror.f. of cluster b is missing" in unread


def test_a_missing_control_group_is_only_a_warning() -> None:
    line = only_warning(replace(EVERYTHING, groups={**GROUPS, "mirror.f.orders": ALL - {READ}}))
    assert "the permission Read on group mirror.f.orders of cluster b is missing" in line


def test_hidden_transactional_ids_refuse_the_flow_or_warn() -> None:
    line = only_problem(replace(EVERYTHING, ids=dict.fromkeys(IDS, NO_OPERATIONS)))
    assert "the permission Describe on transactional ids with the prefix mirror.f. of cluster b is missing" in line
    grant = "--operation Describe --operation Write --transactional-id mirror.f. --resource-pattern-type prefixed"
    assert line.endswith(grant)
    some = only_warning(replace(EVERYTHING, ids={**IDS, "mirror.f.a.clicks.0": NO_OPERATIONS}))
    assert "the permission Describe on transactional id mirror.f.a.clicks.0 of cluster b is missing" in some


# --- sequences

AUTO = flow(topics=["orders", "clicks"], exactly_once_by="auto")
FORCED = flow(topics=["orders", "clicks"], exactly_once_by="sequences")
BY_TRANSACTIONS = flow(topics=["orders", "clicks"], exactly_once_by="transactions")


@pytest.mark.parametrize("config", [AUTO, FORCED])
def test_all_permissions_for_sequences_granted_gives_no_lines(config: FlowConfig) -> None:
    for known in (True, None):
        assert missing_permissions(config, replace(EVERYTHING, broker_configs=known)) == MissingPermissions()


def test_unreadable_brokers_are_a_note_or_refuse_a_flow_that_demands_sequences() -> None:
    unread = replace(EVERYTHING, broker_configs=False)
    assert missing_permissions(BY_TRANSACTIONS, unread) == MissingPermissions()
    line = (
        "the permission DescribeConfigs on the brokers of cluster b is missing: producer.id.expiration.ms cannot be"
        " read, and all records go in transactions; grant to this client's user: kafka-acls --add"
        " --allow-principal User:... --operation DescribeConfigs --cluster"
    )
    assert missing_permissions(AUTO, unread) == MissingPermissions(warnings=[line])
    (line,) = missing_permissions(FORCED, unread).problems
    assert 'cannot be read, and nothing can be copied with exactly-once-by = "sequences"; grant' in line


def test_source_topics_with_a_hidden_configuration_go_in_transactions_or_refuse_the_flow() -> None:
    some = replace(EVERYTHING, source=topics(SOURCE, CONFIGS, "clicks"))
    assert missing_permissions(BY_TRANSACTIONS, some) == MissingPermissions()
    (line,) = missing_permissions(AUTO, some).warnings
    assert "the permission DescribeConfigs on topic clicks of cluster a is missing: whether they are compacted" in line
    assert "and their records go in transactions; grant" in line
    (line,) = missing_permissions(FORCED, some).warnings
    assert "they cannot be copied with exactly-once-by" in line
    every = replace(EVERYTHING, source=topics(SOURCE, CONFIGS, *SOURCE))
    assert missing_permissions(AUTO, every).problems == []
    (line,) = missing_permissions(FORCED, every).problems
    assert "on topics clicks, orders of cluster a is missing: whether they are compacted cannot be read, and" in line


def test_a_source_topic_is_named_once() -> None:
    hidden = replace(EVERYTHING, source={**SOURCE, "clicks": TopicPermissions(0, NO_OPERATIONS)})
    assert missing_permissions(AUTO, hidden) == missing_permissions(BY_TRANSACTIONS, hidden)
    new = replace(EVERYTHING, source=topics(SOURCE, CONFIGS, "clicks"), target={**TARGET, "a.clicks": None})
    assert missing_permissions(AUTO, new) == missing_permissions(BY_TRANSACTIONS, new)


def test_groups_of_the_lazy_progress_are_checked_and_granted_by_the_same_prefix() -> None:
    one = {"orders": TopicPermissions(1, ALL)}
    assert groups_to_check(BY_TRANSACTIONS, one) == ["mirror.f.0", "mirror.f.orders"]
    at_least_once = flow(delivery="at-least-once").model_copy(update={"exactly_once_by": "auto"})
    assert groups_to_check(at_least_once, one) == ["mirror.f.0", "mirror.f.orders"]
    groups = groups_to_check(AUTO, one)
    assert groups == groups_to_check(FORCED, one) == ["mirror.f.0", "mirror.f.progress.0", "mirror.f.orders"]
    assert lazy_group_of("f", TopicPartition("a.orders", 0)) == groups[1]
    unread = replace(EVERYTHING, groups={**dict.fromkeys(groups, ALL), groups[1]: ALL - {READ}})
    (line,) = missing_permissions(AUTO, unread).problems
    assert "the permission Read on groups with the prefix mirror.f. of cluster b is missing" in line
    granted = line.rpartition("--group ")[2].partition(" ")[0]
    assert all(group.startswith(granted) for group in groups)


# --- what is asked, and how much of it


def test_groups_and_ids_to_check() -> None:
    assert groups_to_check(FLOW, {"orders": TopicPermissions(1, ALL), "gone": None}) == [
        "mirror.f.0",
        "mirror.f.orders",
    ]
    assert ids_to_check(FLOW, {"orders": TopicPermissions(9, ALL), "gone": None}) == [
        transactional_id("f", TopicPartition("a.orders", 0))
    ]
    assert ids_to_check(flow(delivery="at-least-once"), SOURCE) == []


def test_thousands_of_topics_give_a_few_lines_and_requests() -> None:
    source = {f"t{number:05}": TopicPermissions(4, NO_OPERATIONS | {DESCRIBE, CONFIGS}) for number in range(10_000)}
    target: dict[str, TopicPermissions | None] = {
        f"a.{name}": TopicPermissions(4, NO_OPERATIONS | {DESCRIBE, CONFIGS}) for name in source
    }
    groups, ids = groups_to_check(FLOW, source), ids_to_check(FLOW, source)
    assert (len(groups), len(ids)) == (SHARDS + 1, 1_000)
    nothing: dict[str, Operations] = dict.fromkeys([*groups, *ids], NO_OPERATIONS)
    found = missing_permissions(FLOW, FlowPermissions(source=source, target=target, groups=nothing, ids=nothing))
    assert found.warnings == []
    assert len(found.problems) == 4
    assert max(len(line) for line in found.problems) < 400
    assert "on topics t00000, t00001, t00002 and 9997 more of cluster a" in found.problems[0]
    assert found.problems[0].endswith("--topic t00000 --topic t00001 --topic t00002 ...")


# --- before anything starts


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[fakes.Cluster]:
    monkeypatch.setenv(fakes.FOLDER, str(tmp_path))
    monkeypatch.setattr("mirror.spark.preflight.flow_checks.Admin", fakes.Admin)
    monkeypatch.setattr("mirror.spark.preflight.acl_lookup.Admin", fakes.Admin)
    made = [fakes.Cluster(f"{name}:1", tmp_path).make() for name in "ab"]
    made[0].add_topic("orders", [1]).add_topic("clicks", [1])
    return made


def test_missing_permissions_of_all_flows_are_in_one_list(clusters: list[fakes.Cluster]) -> None:
    groups = {f"group mirror.f.{shard}": ["READ"] for shard in range(SHARDS)}
    clusters[1].set_moods({"denied": json.dumps(groups), "no_ids": json.dumps(["mirror.g.a.clicks.0"])})
    config = config_of(flow(), flow("g", topics=["clicks"]), flow("h", topics=["nope"]))
    with pytest.raises(FlowsRefused) as refused:
        check_flows(config, config.select())
    assert refused.value.problems.keys() == {"f", "g", "h"}
    assert "the permission Read on groups with the prefix mirror.f." in refused.value.problems["f"][0]
    assert "the permission Describe on transactional ids with the prefix mirror.g." in refused.value.problems["g"][0]
    assert len(str(refused.value).splitlines()) == 3


def test_a_permission_missing_on_some_topics_is_a_warning_of_the_flow(clusters: list[fakes.Cluster]) -> None:
    clusters[0].set_moods({"denied": json.dumps({"topic clicks": ["READ"]})})
    config = config_of(FLOW)
    (line,) = check_flows(config, config.select()).warnings["f"]
    assert "the permission Read on topic clicks of cluster a is missing" in line


def test_permissions_of_heartbeats_are_looked_up_and_stop_nothing(clusters: list[fakes.Cluster]) -> None:
    """Heartbeats do not count as one of the flow's topics: without its own, the flow is refused."""
    config = config_of(BEATING)
    assert check_flows(config, config.select()).warnings["f"] == []
    clusters[0].add_topic("heartbeats", [1]).set_moods({"denied": json.dumps({"topic heartbeats": ["WRITE"]})})
    clusters[1].add_topic("a.heartbeats", [1]).set_moods({"denied": json.dumps({"topic a.heartbeats": ["WRITE"]})})
    written, copied = check_flows(config, config.select()).warnings["f"]
    assert "the permission Write on topic heartbeats of cluster a is missing" in written
    assert "the permission Write on topic a.heartbeats of cluster b is missing" in copied
    clusters[0].set_moods({"denied": json.dumps({"topic orders": ["READ"], "topic clicks": ["READ"]})})
    with pytest.raises(FlowsRefused, match="the permission Read on topics clicks, orders of cluster a is missing"):
        check_flows(config, config.select())


@pytest.mark.parametrize(("mode", "lines"), [("auto", 1), ("transactions", 0)])
def test_brokers_are_asked_only_if_records_may_go_by_sequence(
    clusters: list[fakes.Cluster], mode: str, lines: int
) -> None:
    clusters[1].set_moods({"broker_configs": "refused"})
    config = config_of(flow(topics=["orders", "clicks"], exactly_once_by=mode))
    warnings = check_flows(config, config.select()).warnings["f"]
    assert len([line for line in warnings if "producer.id.expiration.ms cannot be read" in line]) == lines
    config = config_of(flow(topics=["orders", "clicks"], exactly_once_by="sequences"))
    with pytest.raises(FlowsRefused, match=r"DescribeConfigs on the brokers of cluster b is missing"):
        check_flows(config, config.select())


def test_an_impossible_topic_name_hides_no_missing_permission(
    clusters: list[fakes.Cluster],
) -> None:
    """A name that is too long for a question is left out of it."""
    clusters[0].add_topic("x" * 249, [1])
    clusters[1].add_topic("a.orders", [0]).set_moods({"denied": json.dumps({"topic a.orders": ["WRITE"]})})
    config = config_of(flow(topics=["orders", "x+"]))
    (line,) = check_flows(config, config.select()).warnings["f"]
    assert "the permission Write on topic a.orders of cluster b is missing" in line


def test_a_failed_permission_check_is_a_warning(clusters: list[fakes.Cluster], monkeypatch: pytest.MonkeyPatch) -> None:
    assert clusters
    monkeypatch.delattr(fakes.Admin, "group_operations")
    config = config_of(FLOW)
    (line,) = check_flows(config, config.select()).warnings["f"]
    assert line.startswith("the flow's permissions could not be checked: flow f: AttributeError")
