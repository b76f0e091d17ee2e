"""Permissions that consumer groups need, on real brokers: a missing one is named beforehand, and loses nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, NamedTuple

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from mirror.relay.progress.fenced_writer import groups_transactional_id
from mirror.relay.progress.flow_topic import group_topic_of
from tests.copying.group_site import commit
from tests.copying.pair import End
from tests.e2e.broker_side import WITHIN_S, Side
from tests.e2e.site import WARNING, Run, Site, flow
from tests.e2e.test_groups import next_of
from tests.polling import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

_VALUES: Final = [b"%d" % number for number in range(100)]
_AT: Final = 37


class _Flow(NamedTuple):
    """A flow that lacks one permission of the guarded cluster, and two groups."""

    name: str
    topic: str
    source: Side
    target: Side
    prefix: str
    """Of the topic on the target."""
    denied: tuple[ResourceType, str, AclOperation]
    line: str
    """What is named."""
    concerned: str
    """The group that the permission is about, or one of all groups."""
    other: str
    other_moves: bool
    """Whether the other group is brought over without it."""


def _flows(unique: Callable[[str], str], plain: Side, guarded: Side) -> dict[str, _Flow]:
    def made(kind: str, denied: Callable[[str, str], tuple[ResourceType, str, AclOperation]], line: str) -> _Flow:
        name, group = unique(kind), unique(f"{kind}-group")
        ends = (guarded, plain, "g.") if kind == "read" else (plain, guarded, "a.")
        what = denied(name, group)
        line = line.format(what[1])
        return _Flow(name, unique("t"), *ends, what, line, group, f"{group}-other", kind in {"read", "commit"})

    group, topic, ids = ResourceType.GROUP, ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
    none = "no group's position is written"
    return {
        one.name: one
        for one in (
            made(
                "read",
                lambda _, name: (group, name, AclOperation.DESCRIBE),
                "the permission Describe on group {} of cluster g is missing: their positions are not read",
            ),
            made(
                "commit",
                lambda _, name: (group, name, AclOperation.READ),
                "the permission Read on group {} of cluster g is missing: their positions are not written",
            ),
            made(
                "intents",
                lambda name, _: (topic, group_topic_of(name), AclOperation.WRITE),
                f"the permission Write on topic {{}} of cluster g is missing: {none}",
            ),
            made(
                "id",
                lambda name, _: (ids, groups_transactional_id(name), AclOperation.DESCRIBE),
                f"the permission Describe on transactional id {{}} of cluster g is missing: {none}",
            ),
        )
    }


def test_a_missing_permission_for_groups_is_named_and_no_position_is_lost(
    site: Site, source: Side, guarded: Side, unique: Callable[[str], str]
) -> None:
    flows = _flows(unique, source, guarded)
    for one in flows.values():
        one.source.create(one.topic)
        one.source.fill(one.topic, _VALUES)
        for group in (one.concerned, one.other):
            commit(End(one.source.address), group, one.topic, _AT)
        if one.denied[0] == ResourceType.TOPIC:
            one.target.create(one.denied[1], cleanup_policy="compact")
        guarded.deny(*one.denied)
    clusters = {"a": source.address, "g": guarded.address}
    texts = {name: _text(one, "g" if one.source is guarded else "a") for name, one in flows.items()}
    site.write(clusters, texts)
    plan = site.finish(site.launch([*site.command("plan"), "--json"]))
    named = {each["flow"]: each["warnings"] for each in json.loads(plan.out)["flows"]}
    run = site.run()
    assert run.errors == [], run.err
    for name, one in flows.items():
        assert [line for line in named[name] if line.startswith(one.line)], plan.out
        assert [line for line in _warnings(run, name) if line.startswith(one.line)], run.err
        assert one.target.read(one.prefix + one.topic) == _VALUES
        moved = {group for group in (one.concerned, one.other) if _position(one, group) is not None}
        assert moved == ({one.other} if one.other_moves else set()), name
        assert not one.other_moves or _position(one, one.other) == _VALUES[_AT]
    for one in flows.values():
        _allow(guarded, *one.denied)
    again = site.run()
    assert (again.status, again.errors) == (0, []), again.err
    found = {name: [_position(one, group) for group in (one.concerned, one.other)] for name, one in flows.items()}
    assert found == dict.fromkeys(flows, [_VALUES[_AT]] * 2)


def _text(one: _Flow, source: str) -> str:
    groups = f'[flows.{one.name}.groups]\ninclude = ["{one.concerned}.*"]\n'
    return flow(source, "a" if source == "g" else "g", [one.topic], groups)


def _warnings(run: Run, name: str) -> list[str]:
    start = f"{WARNING}flow {name}: "
    return [line.removeprefix(start) for line in run.err.splitlines() if line.startswith(start)]


def _position(one: _Flow, group: str) -> bytes | None:
    """The record at which ``group`` would continue on the target."""
    return next_of(one.target, group, one.prefix + one.topic)


def _allow(side: Side, kind: ResourceType, name: str, operation: AclOperation) -> None:
    """Remove what :meth:`Side.deny` has denied, and wait until the broker knows."""
    wanted = AclBindingFilter(
        kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, AclPermissionType.DENY
    )
    side.admin.delete_acls([wanted])[wanted].result(WITHIN_S)
    eventually(lambda: not side.admin.describe_acls(wanted).result(WITHIN_S), what="the end of an ACL")
