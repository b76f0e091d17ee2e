"""Two flows copy a topic in both directions under one name, and bring a group over. Real clients, brokers in memory."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from mirror.client import TopicPartition
from mirror.groups.decision import Reason
from mirror.groups.positions import GroupPosition
from mirror.groups.routes import CopyingFlow, Partners
from mirror.groups.rules import GroupRules
from mirror.groups.sync import GroupSync
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range
from mirror.relay.model.way import Way
from mirror.relay.origin.records import REGISTRY_TOPIC
from mirror.relay.origin.registry import prepare_registries
from mirror.relay.progress.committed import group_of
from mirror.relay.progress.flow_topic import group_topic_of, offset_topic_of, topic_of
from mirror.relay.task.copy_ranges import copy_ranges
from mirror.runtime.clock import SystemClock
from tests.fakes.cluster import FakeCluster, GroupOffset
from tests.fakes.record_batches import build, values_of
from tests.groups.sync_site import GROUP, only
from tests.relay.fake_pair import FakePair

TP: Final = TopicPartition("both", 0)
FLOWS: Final = "there", "back"
OPTIONS: Final = {"default.api.timeout.ms": 30_000, "request.timeout.ms": 2_000}
A, B = 0, 1


class BothDirections:
    """The topic ``both`` on two clusters, and a flow from each of them to the other."""

    def __init__(self, pair: FakePair, way: Way) -> None:
        self.clusters: Final[tuple[FakeCluster, FakeCluster]] = pair.source, pair.target
        self.policy: Final = CopyPolicy(only_local=True, registers_producers=True, exactly_once_by=way)
        for cluster, flow in zip(self.clusters, reversed(FLOWS), strict=True):
            cluster.add_topic(TP.topic)
            for topic in (topic_of(flow), offset_topic_of(flow), group_topic_of(flow)):
                cluster.add_topic(topic)
            cluster.add_topic(REGISTRY_TOPIC).configs["cleanup.policy"] = "compact"
        for side, flow in enumerate(FLOWS):
            prepare_registries(flow, *self._options(side), only_local=True)
        self.syncs: Final = [self._sync(side) for side in (A, B)]

    def _options(self, side: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Of the flow that copies from ``side``: its source's, and its target's."""
        ends = [{"bootstrap.servers": cluster.bootstrap, **OPTIONS} for cluster in self.clusters]
        return ends[side], ends[1 - side]

    def _sync(self, side: int) -> GroupSync:
        def same(topic: str) -> str | None:
            return topic if topic == TP.topic else None

        rules = GroupRules(includes=lambda group: group == GROUP, target_topic=same, source_topic=same)
        source, target = self._options(side)
        other = CopyingFlow(
            name=FLOWS[1 - side],
            source_options=target,
            target_options=source,
            policy=self.policy,
            rules=rules,
            writes=True,
        )
        partners = Partners(opposite=other.name, copying=(other,))
        return GroupSync(FLOWS[side], source, target, self.policy, rules, SystemClock(), partners)

    def close(self) -> None:
        for sync in self.syncs:
            sync.close()

    def write(self, side: int, *values: bytes) -> None:
        """Young records, so that they go by sequence."""
        data = build(values, producer_id=7, producer_epoch=0, base_sequence=0, timestamp=int(time.time() * 1000))
        self.clusters[side].log(TP.topic).append(data)

    def copy_all(self) -> None:
        """Until each flow has passed what the other one has written, but for a last marker."""
        for _ in range(2):
            self.copy()

    def copy(self) -> None:
        for side, flow in enumerate(FLOWS):
            source, target = self.clusters[side], self.clusters[1 - side]
            kept = target.groups[group_of(flow, TP)].get(TP)
            copied = Range(
                flow=flow,
                topic=TP.topic,
                target_topic=TP.topic,
                partition=0,
                start=0 if kept is None else kept.offset,
                end=source.log(TP.topic).end_offset,
                source_cluster_id=source.cluster_id,
                topic_id=str(source.topics[TP.topic].topic_id),
                first=0,
            )
            ends = self._options(side)
            (result,) = copy_ranges([copied], source_options=ends[0], target_options=ends[1], policy=self.policy)
            assert result.outcome is Outcome.COMPLETE, result.error

    def values(self, side: int, start: int = 0, end: int | None = None) -> list[bytes]:
        """The records of these offsets."""
        return [
            value
            for one in self.clusters[side].log(TP.topic).batches()
            if not one.is_control
            for offset, value in enumerate(values_of(one.view), one.base_offset)
            if start <= offset and (end is None or offset < end)
        ]

    def committed(self, side: int) -> int:
        found = self.clusters[side].groups[GROUP].get(TP)
        return 0 if found is None else found.offset

    def consume(self, side: int, count: int) -> list[bytes]:
        """Read on from the group's position, and commit."""
        at = self.committed(side)
        end, values = at, self.values(side, at)[:count]
        while self.values(side, at, end) != values:
            end += 1
        self.clusters[side].groups[GROUP][TP] = GroupOffset(end, -1, "")
        return values

    def round(self, side: int) -> GroupPosition:
        return only(self.syncs[side].round())


@pytest.fixture(params=[Way.SEQUENCES, Way.TRANSACTIONS])
def site(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[BothDirections]:
    made = BothDirections(FakePair(monkeypatch), request.param)
    yield made
    made.close()


def test_a_group_moves_there_and_back_and_skips_nothing(site: BothDirections) -> None:
    rng, written, read = random.Random(), set[bytes](), set[bytes]()
    for move in range(4):
        side = move % 2
        for producer in (A, B):
            values = [b"%d of %d in %d" % (number, producer, move) for number in range(rng.randint(1, 8))]
            written.update(values)
            site.write(producer, *values)
            if rng.random() < 0.5:
                site.copy()
        site.copy_all()
        left = len(site.values(side, site.committed(side)))
        read.update(site.consume(side, rng.randint(1, left)))
        position = site.round(side)
        assert position.reason is None, position
        rest = site.values(1 - side, site.committed(1 - side))
        assert set(rest) >= written - read, "nothing is skipped"
        again = set(rest) & set(site.values(side, 0, site.committed(side)))
        count, is_exact = position.read_again
        assert count == len(again) or (count > len(again) and not is_exact)
        at_rest = site.committed(A), site.committed(B)
        for other in (1 - side, side, 1 - side):
            assert site.round(other).reason is None
        assert (site.committed(A), site.committed(B)) == at_rest


def test_a_position_at_the_end_of_a_log_into_which_only_the_other_side_writes_is_not_that_of_the_last_copy(
    site: BothDirections,
) -> None:
    """The flow's last copy is far back, but there is nothing to be copied behind it."""
    site.write(A, b"first")
    site.copy()
    site.write(B, *(b"%d" % number for number in range(50)))
    site.copy_all()
    site.consume(A, 51)
    assert site.round(A).reason is None
    assert site.committed(B) >= 51
    assert site.values(B, site.committed(B)) == []


def test_without_the_other_flow_s_progress_nothing_is_guessed(site: BothDirections) -> None:
    site.write(A, b"1", b"2")
    site.write(B, b"3")
    site.copy()
    for group in [name for name in site.clusters[A].groups if name.startswith("mirror.")]:
        del site.clusters[A].groups[group]
    site.consume(A, 1)
    position = site.round(A)
    assert (position.reason, position.detail) == (Reason.UNKNOWN, "flow back has no progress of both-0")
