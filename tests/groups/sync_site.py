"""A copied topic in memory, and groups on both sides of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mirror.client import TopicPartition
from mirror.groups.clusters import FlowAccess
from mirror.groups.positions import GroupPosition, GroupsReport
from mirror.groups.rules import GroupRules
from mirror.groups.sync import GroupSync
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.progress.flow_topic import group_topic_of
from mirror.runtime.clock import SystemClock
from mirror.timing import Clock
from tests.fakes.cluster import GroupOffset
from tests.relay.fake_pair import FLOW, FakePair

SOURCE, TARGET = TopicPartition("t", 0), TopicPartition("paris.t", 0)
GROUP = "billing"


def rules(**changes: Any) -> GroupRules:
    return GroupRules(
        **{
            "includes": lambda group: not group.startswith(("mirror.", "console")),
            "target_topic": lambda topic: f"paris.{topic}" if topic == "t" else None,
            "source_topic": lambda topic: topic.removeprefix("paris.") if topic == "paris.t" else None,
            **changes,
        }
    )


def access_to(pair: FakePair, name: str = FLOW, policy: CopyPolicy | None = None) -> FlowAccess:
    """To the clusters of a flow from the source to the target."""
    source, target = ({"bootstrap.servers": one.bootstrap} for one in (pair.source, pair.target))
    return FlowAccess(name=name, source_options=source, target_options=target, policy=policy or CopyPolicy())


def turned(access: FlowAccess, name: str) -> FlowAccess:
    """Of a flow in the other direction."""
    return replace(access, name=name, source_options=access.target_options, target_options=access.source_options)


class Site:
    """A copied topic, and groups on both sides."""

    def __init__(self, pair: FakePair) -> None:
        self.pair = pair
        pair.target.add_topic(group_topic_of(FLOW))
        self._open: list[GroupSync] = []

    def sync(self, *, clock: Clock | None = None, interval_ms: int = 0, **changes: Any) -> GroupSync:
        made = GroupSync(self.access(), rules(**changes), clock or SystemClock(), interval_ms=interval_ms)
        self._open.append(made)
        return made

    def access(self) -> FlowAccess:
        return access_to(self.pair, policy=CopyPolicy(exactly_once=self.pair.exactly_once))

    def close(self) -> None:
        for one in self._open:
            one.close()

    def commit(self, offset: int, *, group: str = GROUP, metadata: str = "", tp: TopicPartition = SOURCE) -> None:
        """On the source."""
        self.pair.source.groups[group][tp] = GroupOffset(offset, 0, metadata)

    def commit_on_target(self, offset: int, *, group: str = GROUP) -> None:
        self.pair.target.groups[group][TARGET] = GroupOffset(offset, 0, "theirs")

    def at_target(self, group: str = GROUP) -> int | None:
        found = self.pair.target.groups[group].get(TARGET)
        return None if found is None else found.offset


def only(report: GroupsReport, group: str = GROUP) -> GroupPosition:
    (position,) = report.groups[group].positions
    return position
