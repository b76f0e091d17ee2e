"""Permissions that a flow lacks, by what its clusters report: what refuses it, what is only said, and what is not."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping

import pytest

from mirror.client import AclOperation, TopicPartition
from mirror.config.models import FlowConfig
from mirror.config.switch_settings import SwitchConfig
from mirror.relay.progress.committed import SHARDS, lazy_group_of
from mirror.spark.preflight.permission_check import MissingPermissions, missing_permissions
from mirror.spark.preflight.permission_table import PERMISSIONS, progress_groups, transactional_ids
from mirror.spark.preflight.permissions import NO_OPERATIONS, Allowed, FlowPermissions, Kind, Side
from tests.spark.planning.test_range_planner import flow
from tests.spark.preflight.test_flow_checks import config_of

ALL = frozenset(AclOperation)
READ, WRITE, ALTER, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.ALTER, AclOperation.DELETE
DESCRIBE, CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
PROGRESS, OFFSETS = "topic mirror-progress.f.internal", "topic mirror-offsets.f.internal"
STATUS, INVENTORY = "topic mirror-progress.f.status.internal", "topic mirror-inventory.f.internal"
TO_CREATE = "--operation Describe --operation Read --operation Write --operation Create --operation DescribeConfigs"
GRANT = "grant to this client's user: kafka-acls --add --allow-principal User:..."
TOPICS = ("clicks", "orders")
NONE = MissingPermissions()
HIDDEN = Allowed(NO_OPERATIONS)


def granted(
    config: FlowConfig,
    changed: Mapping[str, Allowed | None] | None = None,
    *,
    topics: Collection[str] = TOPICS,
    groups: Collection[str] | None = None,
    switches: Collection[SwitchConfig] = (),
) -> FlowPermissions:
    """Everything that the flow uses is there and allowed, but for what is ``changed``: ``source topic orders``."""
    switched = config_of(config).model_copy(update={"switches": {one.name: one for one in switches}})
    found = FlowPermissions(config=switched, flow=config, topics=topics, groups=groups)
    left = dict(changed or {})
    for kind in Kind:
        for one in PERMISSIONS:
            if one.resource.kind is kind:
                by_name = dict(found.allowed.get(one.place, {}))
                for name in one.needing(found):
                    key = (
                        f"{one.resource.side} {kind.word} {name}"
                        if kind.has_names
                        else f"{one.resource.side} {kind.word}"
                    )
                    by_name.setdefault(name, left.pop(key, Allowed(ALL, 2)))
                found.allowed[one.place] = by_name
    assert not left, "the flow does not use it"
    return found


def without(*operations: AclOperation, partitions: int = 2) -> Allowed:
    return Allowed(ALL - set(operations), partitions)


def missing(
    config: FlowConfig, changed: Mapping[str, Allowed | None] | None = None, groups: Collection[str] | None = None
) -> MissingPermissions:
    return missing_permissions(granted(config, changed, groups=groups))


SWITCH = SwitchConfig(name="move", flows=("f",))
FLOW = flow(topics=["orders", "clicks"], exactly_once_by="transactions")


def only_problem(changed: Mapping[str, Allowed | None], config: FlowConfig = FLOW) -> str:
    found = missing(config, changed)
    (line,) = found.problems
    assert found.warnings == []
    assert line.startswith("flow f: ")
    return line.removeprefix("flow f: ")


def only_warning(
    changed: Mapping[str, Allowed | None], config: FlowConfig = FLOW, groups: Collection[str] | None = None
) -> str:
    found = missing(config, changed, groups)
    (line,) = found.warnings
    assert found.problems == []
    return line


def on_all(place: str, allowed: Allowed | None) -> dict[str, Allowed | None]:
    prefix = "a." if place == "target topic" else ""
    return {f"{place} {prefix}{name}": allowed for name in TOPICS}


def test_all_permissions_granted_gives_no_lines() -> None:
    assert missing(FLOW) == NONE


def test_permissions_that_brokers_do_not_return_give_no_lines() -> None:
    found = granted(FLOW)
    assert missing_permissions(FlowPermissions(config=found.config, flow=FLOW, topics=TOPICS)) == NONE
    unknown: dict[tuple[Side, Kind], Mapping[str, Allowed | None]] = {
        place: dict.fromkeys(names, Allowed(None, 1)) for place, names in found.allowed.items()
    }
    assert missing_permissions(FlowPermissions(config=found.config, flow=FLOW, topics=TOPICS, allowed=unknown)) == NONE


# --- the source's topics


def test_unreadable_source_topics_are_named_in_a_warning() -> None:
    assert only_warning({"source topic clicks": without(READ)}) == (
        "the permission Read on topic clicks of cluster a is missing: their records cannot be read; the flow's other"
        f" topics are copied; {GRANT} --operation Read --topic clicks"
    )


def test_a_flow_that_can_read_none_of_its_topics_is_refused() -> None:
    assert only_problem(on_all("source topic", without(READ))) == (
        "the permission Read on topics clicks, orders of cluster a is missing: their records cannot be read, and"
        f" nothing can be copied; {GRANT} --operation Read --topic clicks --topic orders"
    )


def test_creation_needs_describe_configs_on_the_source_topic() -> None:
    hidden = {"source topic clicks": without(CONFIGS)}
    assert missing(FLOW, hidden) == NONE, "for those that are there they are only compared"
    line = only_warning({**hidden, "target topic a.clicks": None})
    assert "the permission DescribeConfigs on topic clicks of cluster a is missing" in line
    every = {**on_all("source topic", without(CONFIGS)), **on_all("target topic", None)}
    assert "DescribeConfigs on topics clicks, orders of cluster a is missing" in only_problem(every)


def test_a_flow_with_a_topic_left_that_can_be_copied_is_not_refused() -> None:
    """Two topics cannot be copied, for different reasons; the third can."""
    changed = {"source topic clicks": without(READ), "target topic a.orders": HIDDEN}
    found = missing_permissions(granted(flow(exactly_once_by="transactions"), changed, topics=(*TOPICS, "sales")))
    assert (found.problems, len(found.warnings)) == ([], 2)


# --- heartbeats

BEATING = flow(topics=["orders", "clicks"], exactly_once_by="transactions", mirrormaker={"heartbeats": True})


@pytest.mark.parametrize(("operation", "name"), [(WRITE, "Write"), (READ, "Read")])
def test_heartbeats_that_cannot_be_written_or_copied_are_a_warning(operation: AclOperation, name: str) -> None:
    assert missing(BEATING) == NONE
    assert only_warning({"source topic heartbeats": without(operation)}, BEATING) == (
        f"the permission {name} on topic heartbeats of cluster a is missing: heartbeats are not written and copied;"
        f" {GRANT} --operation {name} --topic heartbeats"
    )
    line = only_warning({"target topic a.heartbeats": without(operation)}, BEATING)
    assert f"{name} on topic a.heartbeats of cluster b is missing: heartbeats are not copied;" in line


def test_hidden_heartbeats_need_all_that_creation_needs() -> None:
    assert TO_CREATE in only_warning({"source topic heartbeats": HIDDEN}, BEATING)


def test_selected_heartbeats_are_checked_once() -> None:
    """As a topic that the flow copies anyway, and as one that it writes to."""
    lacking = {"source topic heartbeats": without(READ, WRITE)}
    lines = missing_permissions(granted(BEATING, lacking, topics=(*TOPICS, "heartbeats"))).warnings
    assert [line.split(" of cluster")[0] for line in lines] == [
        "the permission Read on topic heartbeats",
        "the permission Write on topic heartbeats",
    ]


# --- the target's topics


@pytest.mark.parametrize(("operation", "name"), [(WRITE, "Write"), (READ, "Read")])
def test_unwritable_target_topics_are_a_warning_or_refuse_the_flow(operation: AclOperation, name: str) -> None:
    some = {"target topic a.clicks": without(operation)}
    line = only_warning(some)
    assert f"the permission {name} on topic a.clicks of cluster b is missing: their records cannot be written;" in line
    every = only_problem(on_all("target topic", without(operation)))
    assert f"the permission {name} on topics a.clicks, a.orders of cluster b is missing" in every
    assert "and nothing can be copied" in every
    assert only_warning({**some, "target topic a.orders": None}), "what may be done with it is seen once it is there"


def test_a_hidden_target_topic_is_named_with_all_operations_to_grant() -> None:
    line = only_warning({"target topic a.clicks": HIDDEN})
    assert "the permission Describe on topic a.clicks of cluster b is missing: they cannot be prepared;" in line
    assert line.endswith(f"{TO_CREATE} --topic a.clicks")


def test_a_topic_that_may_have_to_be_created_needs_create() -> None:
    """Brokers hide whether it exists."""
    assert only_problem({f"target {PROGRESS}": HIDDEN}).endswith(f"{TO_CREATE} --{PROGRESS}")
    assert "Create" not in only_warning({"target topic a.orders": without(CONFIGS)}), "it is there"


def test_target_topics_need_describe_configs() -> None:
    line = only_warning({"target topic a.orders": without(CONFIGS)})
    assert "the permission DescribeConfigs on topic a.orders of cluster b is missing" in line
    every = only_problem(on_all("target topic", without(CONFIGS)))
    assert "they cannot be prepared, and nothing can be copied" in every


def test_alter_is_needed_if_partitions_are_to_be_added() -> None:
    fixed = {"target topic a.orders": without(ALTER)}
    assert missing(FLOW, fixed) == NONE
    line = only_warning({**fixed, "source topic orders": Allowed(ALL, 3)})
    assert "the permission Alter on topic a.orders of cluster b is missing" in line


# --- the flow's own topics


def test_the_progress_topic_needs_read_and_warns_without_write() -> None:
    unread = only_problem({f"target {PROGRESS}": without(READ)})
    assert f"the permission Read on {PROGRESS} of cluster b is missing: no partition can start" in unread
    unwritten = only_warning({f"target {PROGRESS}": without(WRITE)})
    assert f"the permission Write on {PROGRESS} of cluster b is missing: progress that" in unwritten
    assert missing(FLOW, {f"target {PROGRESS}": None}) == NONE


@pytest.mark.parametrize(("operation", "name"), [(READ, "Read"), (WRITE, "Write")])
@pytest.mark.parametrize(
    ("topic", "why"), [(OFFSETS, "offsets cannot be translated"), (STATUS, "other hosts do not see")]
)
def test_other_topics_of_the_flow_warn_without_read_or_write(
    operation: AclOperation, name: str, topic: str, why: str
) -> None:
    line = only_warning({f"target {topic}": without(operation)})
    assert f"the permission {name} on {topic} of cluster b is missing: {why}" in line
    assert missing(FLOW, {f"target {topic}": None}) == NONE


# --- groups and transactional ids


def test_groups_are_named_once_by_their_prefix() -> None:
    groups = granted(FLOW).allowed[Side.TARGET, Kind.GROUP]
    assert "mirror.f.control" in groups
    none = only_problem({f"target group {name}": HIDDEN for name in groups})
    assert "the permission Describe on groups with the prefix mirror.f. of cluster b is missing" in none
    grant = "--operation Describe --operation Read --group mirror.f. --resource-pattern-type prefixed"
    assert none.endswith(grant), "Read may be missing as well, and does not show"
    unread = only_problem({f"target group {min(groups)}": without(READ)})
    assert "the permission Read on groups with the prefix mirror.f. of cluster b is missing" in unread


def test_a_missing_control_group_is_only_a_warning() -> None:
    line = only_warning({"target group mirror.f.control": without(READ)})
    assert "the permission Read on group mirror.f.control of cluster b is missing" in line


def test_hidden_transactional_ids_refuse_the_flow_or_warn() -> None:
    ids = [f"target transactional id mirror.f.a.{name}.0" for name in TOPICS]
    line = only_problem(dict.fromkeys(ids, HIDDEN))
    assert "the permission Describe on transactional ids with the prefix mirror.f. of cluster b is missing" in line
    grant = "--operation Describe --operation Write --transactional-id mirror.f. --resource-pattern-type prefixed"
    assert line.endswith(grant)
    some = only_warning({ids[0]: HIDDEN})
    assert "the permission Describe on transactional id mirror.f.a.clicks.0 of cluster b is missing" in some
    assert some.endswith(grant)
    only_describe = Allowed(frozenset({DESCRIBE}))
    assert missing(FLOW, dict.fromkeys(ids, only_describe)) == NONE, "brokers show no more"


# --- sequences

AUTO = flow(topics=["orders", "clicks"], exactly_once_by="auto")
FORCED = flow(topics=["orders", "clicks"], exactly_once_by="sequences")


@pytest.mark.parametrize("config", [AUTO, FORCED])
def test_all_permissions_for_sequences_granted_gives_no_lines(config: FlowConfig) -> None:
    for known in (without(), Allowed(None)):
        assert missing(config, {"target the brokers": known}) == NONE


def test_unreadable_brokers_are_a_note_or_refuse_a_flow_that_demands_sequences() -> None:
    unread = {"target the brokers": Allowed(frozenset({DESCRIBE}))}
    assert only_warning(unread, AUTO) == (
        "the permission DescribeConfigs on the brokers of cluster b is missing: producer.id.expiration.ms cannot be"
        f" read, and all records go in transactions; {GRANT} --operation DescribeConfigs --cluster"
    )
    line = only_problem(unread, FORCED)
    assert 'cannot be read, and nothing can be copied with exactly-once-by = "sequences"; grant' in line
    assert Kind.BROKERS not in {kind for (_, kind), names in granted(FLOW).allowed.items() if names}


def test_source_topics_with_a_hidden_configuration_go_in_transactions_or_refuse_the_flow() -> None:
    some = {"source topic clicks": without(CONFIGS)}
    assert missing(FLOW, some) == NONE
    line = only_warning(some, AUTO)
    assert "the permission DescribeConfigs on topic clicks of cluster a is missing: whether they are compacted" in line
    assert "and their records go in transactions; grant" in line
    forced = only_warning(some, FORCED)
    assert 'cannot be read, as exactly-once-by = "sequences" needs; the flow\'s other topics are copied;' in forced
    every = on_all("source topic", without(CONFIGS))
    assert missing(AUTO, every).problems == []
    assert "needs, and nothing can be copied; grant" in only_problem(every, FORCED)


def test_a_source_topic_is_named_once() -> None:
    hidden = {"source topic clicks": HIDDEN}
    assert "--operation Describe --operation Read --topic" in only_warning(hidden)
    needs_more = "--operation Describe --operation Read --operation DescribeConfigs --topic"
    assert needs_more in only_warning(hidden, AUTO)
    new = {"source topic clicks": without(CONFIGS), "target topic a.clicks": None}
    assert only_warning(new, AUTO) == only_warning(new)


def test_groups_of_the_lazy_progress_are_checked_and_granted_by_the_same_prefix() -> None:
    one = {"source topic orders": Allowed(ALL, 1)}
    at_least_once = flow(delivery="at-least-once").model_copy(update={"exactly_once_by": "auto"})
    for config in (FLOW, at_least_once):
        assert progress_groups(granted(config, one, topics=["orders"])) == ["mirror.f.0"]
    for config in (AUTO, FORCED):
        exact, lazy = progress_groups(granted(config, one, topics=["orders"]))
        assert (exact, lazy) == ("mirror.f.0", lazy_group_of("f", TopicPartition("a.orders", 0)))
        found = granted(config, {**one, f"target group {lazy}": without(READ)}, topics=["orders"])
        (line,) = missing_permissions(found).problems
        assert "the permission Read on groups with the prefix mirror.f. of cluster b is missing" in line
        prefix = line.rpartition("--group ")[2].partition(" ")[0]
        assert lazy.startswith(prefix)
        assert exact.startswith(prefix)


# --- consumer groups

CARRYING = flow(topics=["orders", "clicks"], exactly_once_by="transactions", groups={})
GROUPS = ("audit", "billing")
GROUP_TOPIC = "mirror-groups.f.internal"


def test_groups_that_may_not_be_committed_are_named() -> None:
    assert missing(CARRYING, groups=GROUPS) == missing(CARRYING, groups=None) == NONE
    assert only_warning({"target group billing": without(READ)}, CARRYING, GROUPS) == (
        "the permission Read on group billing of cluster b is missing: their positions are not written;"
        f" {GRANT} --operation Read --group billing"
    )
    hidden = {f"target group {name}": HIDDEN for name in GROUPS}
    assert "--operation Describe --operation Read --group audit --group billing" in only_warning(
        hidden, CARRYING, GROUPS
    )


def test_groups_whose_offsets_are_to_be_deleted_need_the_permission() -> None:
    deleting = flow(exactly_once_by="transactions", groups={"on-group-deleted": "delete"})
    undeletable = {"target group billing": without(DELETE)}
    assert missing(CARRYING, undeletable, GROUPS) == NONE
    line = only_warning(undeletable, deleting, GROUPS)
    assert "the permission Delete on group billing of cluster b is missing: their positions are not deleted" in line
    line = only_warning({"target group billing": HIDDEN}, deleting, GROUPS)
    assert "--operation Describe --operation Read --operation Delete --group billing" in line


def test_names_of_groups_are_quoted_in_the_command() -> None:
    """A group's name is any text."""
    name = "x; rm -rf '$HOME'"
    command = only_warning({f"target group {name}": HIDDEN}, CARRYING, [name]).split("client's user: ")[1]
    assert shlex.split(command)[-2:] == ["--group", name]


def test_a_source_that_shows_no_group_may_lack_a_permission() -> None:
    assert "no consumer group of cluster a is one of [flows.f.groups]" in only_warning({}, CARRYING, [])


# --- what is written in transactions: positions, configurations, deletions, ACLs

ALIGNING = flow(topics=["orders", "clicks"], exactly_once_by="transactions", configs="sync")
DELETING = flow(topics=["orders", "clicks"], exactly_once_by="transactions", on_topic_deleted="delete")
WITH_ACLS = flow(topics=["orders", "clicks"], exactly_once_by="transactions", acls={})


@pytest.mark.parametrize(
    ("config", "topic", "its_id", "why"),
    [
        (CARRYING, "topic mirror-groups.f.internal", "mirror.f.groups", "no group's position is written"),
        (ALIGNING, INVENTORY, "mirror.f.changes", "no configuration is brought in step"),
        (DELETING, INVENTORY, "mirror.f.changes", "no topic is deleted"),
        (WITH_ACLS, INVENTORY, "mirror.f.changes", "ACLs are not brought in step"),
    ],
)
def test_topics_written_in_transactions_are_named_with_their_ids(
    config: FlowConfig, topic: str, its_id: str, why: str
) -> None:
    assert missing(config) == NONE
    for operation, name in ((READ, "Read"), (WRITE, "Write")):
        line = only_warning({f"target {topic}": without(operation)}, config)
        assert f"the permission {name} on {topic} of cluster b is missing: {why};" in line
    line = only_warning({f"target transactional id {its_id}": HIDDEN}, config)
    assert f"the permission Describe on transactional id {its_id} of cluster b is missing: {why};" in line
    assert line.endswith(f"--operation Describe --operation Write --transactional-id {its_id}")


def test_a_topic_that_several_parts_write_is_named_once() -> None:
    both = flow(exactly_once_by="transactions", configs="sync", acls={}, on_topic_deleted="delete")
    assert "no configuration is brought in step" in only_warning({f"target {INVENTORY}": without(WRITE)}, both)


def test_alter_configs_on_target_topics_is_named_with_the_command() -> None:
    assert only_warning({"target topic a.orders": without(ALTER_CONFIGS)}, ALIGNING) == (
        "the permission AlterConfigs on topic a.orders of cluster b is missing: their configurations are not brought in"
        f" step; {GRANT} --operation AlterConfigs --topic a.orders"
    )


def test_what_is_not_visible_or_is_checked_for_sequences_is_named_once() -> None:
    both = {"source topic orders": HIDDEN, "target topic a.orders": HIDDEN}
    assert len(missing(ALIGNING, both).warnings) == len(both)
    unread = {"source topic orders": without(CONFIGS)}
    for way, why in (("auto", "go in transactions"), ("transactions", "are not brought in step")):
        assert why in only_warning(unread, flow(configs="sync", exactly_once_by=way))


def test_delete_on_target_topics_is_named_only_where_topics_are_deleted() -> None:
    lacking = {"target topic a.orders": without(DELETE)}
    assert missing(FLOW, lacking) == NONE
    line = only_warning({**lacking, "target topic a.clicks": None}, DELETING)
    assert "Delete on topic a.orders of cluster b is missing: they are not deleted when their source" in line


def test_the_cluster_s_permissions_are_named_with_the_command() -> None:
    assert only_warning({"source the ACLs": HIDDEN}, WITH_ACLS) == (
        "the permission Describe on the ACLs of cluster a is missing: ACLs are not brought in step;"
        f" {GRANT} --operation Describe --cluster"
    )
    line = only_warning({"target the ACLs": HIDDEN}, WITH_ACLS)
    assert line.endswith("--operation Describe --operation Alter --cluster")
    line = only_warning({"target the ACLs": without(ALTER)}, WITH_ACLS)
    assert "the permission Alter on the ACLs of cluster b is missing" in line
    assert missing(WITH_ACLS, {"source the ACLs": without(ALTER)}) == NONE


@pytest.mark.parametrize("side", ["source", "target"])
def test_what_a_switch_needs_on_both_clusters_is_named_with_the_commands(side: str) -> None:
    lacking = {
        f"{side} topic mirror-progress.move.switch.internal": HIDDEN,
        f"{side} transactional id mirror.move.switch": HIDDEN,
        f"{side} the ACLs": without(ALTER),
    }
    found = missing_permissions(granted(FLOW, lacking, switches=[SWITCH]))
    assert found.problems == []
    cluster, why = {"source": "a", "target": "b"}[side], "is missing: its clients cannot be switched"
    topic, transactional_id, acls = found.warnings
    assert f"topic mirror-progress.move.switch.internal of cluster {cluster} {why}" in topic
    assert topic.endswith(f"{TO_CREATE} --topic mirror-progress.move.switch.internal")
    assert f"transactional id mirror.move.switch of cluster {cluster} {why}" in transactional_id
    assert transactional_id.endswith("--operation Describe --operation Write --transactional-id mirror.move.switch")
    assert f"the permission Alter on the ACLs of cluster {cluster} {why}" in acls


def test_a_switch_with_a_hook_alters_no_acl_and_one_of_other_flows_needs_nothing() -> None:
    hook = SwitchConfig(name="move", flows=("f",), fence="hook")
    assert (Side.SOURCE, Kind.CLUSTER) not in needed_by(hook)
    assert (Side.SOURCE, Kind.CLUSTER) in needed_by(SWITCH)
    assert needed_by(SwitchConfig(name="move", flows=("other",))) == needed_by()


def needed_by(*switches: SwitchConfig) -> set[tuple[Side, Kind]]:
    return {place for place, names in granted(FLOW, switches=switches).allowed.items() if names}


# --- what is asked, and how much of it


def test_groups_and_ids_to_check() -> None:
    gone = {"source topic clicks": None}
    assert progress_groups(granted(FLOW, {**gone, "source topic orders": Allowed(ALL, 1)})) == ["mirror.f.0"]
    assert transactional_ids(granted(FLOW, gone)) == ["mirror.f.a.orders.0"]
    at_least_once = granted(flow(delivery="at-least-once"))
    assert at_least_once.allowed[Side.TARGET, Kind.TRANSACTIONAL_ID] == {}


def test_thousands_of_topics_give_a_few_lines_and_requests() -> None:
    names = [f"t{number:05}" for number in range(10_000)]
    found = granted(FLOW, topics=names)
    groups, ids = (found.allowed[Side.TARGET, kind] for kind in (Kind.GROUP, Kind.TRANSACTIONAL_ID))
    assert (len(groups), len(ids)) == (SHARDS + 1, 1_000)
    useless = Allowed(frozenset({DESCRIBE, CONFIGS}), 4)
    for (_, kind), allowed in list(found.allowed.items()):
        found.allowed[_, kind] = dict.fromkeys(allowed, useless if kind is Kind.TOPIC else HIDDEN)
    lines = missing_permissions(found)
    own_topics = 4
    assert (len(lines.problems), len(lines.warnings)) == (5, own_topics)
    assert max(len(line) for line in lines.problems) < 400
    assert "on topics t00000, t00001, t00002 and 9997 more of cluster a" in lines.problems[0]
    assert lines.problems[0].endswith("--topic t00000 --topic t00001 --topic t00002 ...")
