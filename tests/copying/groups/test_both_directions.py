"""A group moves between two clusters whose flows feed a topic from both sides under one name. confluent-kafka reads."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest

from mirror.client import Admin, TopicPartition
from mirror.groups.clusters import FlowAccess
from mirror.groups.positions import GroupPosition
from mirror.groups.routes import CopyingFlow, Partners
from mirror.groups.rules import GroupRules
from mirror.groups.sync import GroupSync
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.progress.committed import read_progress
from mirror.relay.progress.flow_topic import group_topic_of
from mirror.runtime.clock import SystemClock
from mirror.sandbox.cluster import Cluster
from tests.copying.both_ways import LOCAL, WAYS, BothWays, write_idempotent, write_plain, write_transactional
from tests.copying.group_site import committed_at, consumer_of
from tests.copying.pair import TwoClusters
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(600)]

A, B = 0, 1
WRITERS: Final = write_plain, write_idempotent, write_transactional


@pytest.fixture(scope="module")
def both(uneasy_cluster: Cluster, target_cluster: Cluster) -> BothWays:
    return BothWays(uneasy_cluster, target_cluster)


class MovingGroup:
    """A group on both sides of a topic, the flows' rounds, and what was written and read."""

    def __init__(self, both: BothWays, topic: str, group: str, policy: dict[str, Any]) -> None:
        self.ends: Final = both.there.source, both.there.target
        self.rng: Final = random.Random()
        self.written: Final = set[bytes]()
        self.read: Final = set[bytes]()
        self._both: Final = both
        self._topic: Final = topic
        self._group: Final = group
        self._policy: Final = policy
        with ExitStack() as stack:
            self._syncs: Final = [stack.enter_context(self._sync(side)) for side in (A, B)]
            self._open: Final = stack.pop_all()

    def close(self) -> None:
        self._open.close()

    def _sync(self, side: int) -> GroupSync:
        def same(topic: str) -> str | None:
            return topic if topic == self._topic else None

        flows = [pair.flow for pair in (self._both.there, self._both.back)]
        rules = GroupRules(includes=lambda group: group == self._group, target_topic=same, source_topic=same)
        ends = [{"bootstrap.servers": end.address} for end in self.ends]
        policy = CopyPolicy(**LOCAL, **self._policy)
        own, back = (
            FlowAccess(name=flows[one], source_options=ends[one], target_options=ends[1 - one], policy=policy)
            for one in (side, 1 - side)
        )
        own_topic, target = group_topic_of(flows[side]), self.ends[1 - side]
        if own_topic not in target.topics():
            target.create(own_topic, cleanup_policy="compact")
        other = CopyingFlow(access=back, rules=rules, writes=True)
        partners = Partners(opposite=other.name, copying=(other,))
        return GroupSync(own, rules, SystemClock(), partners)

    def write(self, move: int) -> None:
        """Both sides write in random order; sometimes it is copied in between."""
        writers = [(side, write) for side in (A, B) for write in WRITERS]
        self.rng.shuffle(writers)
        for side, write in writers:
            values = [b"%d %d %s %d" % (move, side, write.__name__.encode(), n) for n in range(self.rng.randint(1, 20))]
            write(self.ends[side], self._topic, values)
            self.written.update(values)
            if self.rng.random() < 0.3:
                self.copy()

    def copy(self) -> None:
        self._both.copy(self._topic, **self._policy)

    def position(self, side: int) -> int:
        """What the group has committed on a side, 0 if nothing."""
        return max(0, committed_at(self.ends[side], self._group, self._topic)[0])

    def consume(self, side: int) -> None:
        """A member reads on from the group's position, and commits at a record of its choice."""
        values = self.values(side, self.position(side))
        wanted = self.rng.randint(1, len(values))
        protocol = self.rng.choice(("classic", "consumer"))
        with consumer_of(
            self.ends[side], self._group, group_protocol=protocol, auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe([self._topic])
            found: list[bytes] = []

            def enough() -> bool:
                for message in consumer.consume(wanted - len(found), timeout=0.2):
                    assert message.error() is None, message.error()
                    found.append(message.value() or b"")
                    if len(found) == wanted:
                        consumer.commit(message=message, asynchronous=False)
                return len(found) == wanted

            eventually(enough, within_s=60, what=f"{wanted} records")
        assert found == values[:wanted]
        self.read.update(found)

    def values(self, side: int, start: int = 0, end: int | None = None) -> list[bytes]:
        """The committed records of these offsets."""
        seen = self.ends[side].seen(self._topic)
        return [one.value or b"" for at, one in seen if start <= at and (end is None or at < end)]

    def round(self, side: int) -> GroupPosition:
        (position,) = self._syncs[side].round().groups[self._group].positions
        return position

    def settled(self, side: int) -> GroupPosition:
        """The group's position from ``side`` on the other side, once all is copied and it is in step."""
        found: list[GroupPosition] = []

        def in_step() -> bool:
            self.copy()
            found.append(self.round(side))
            return found[-1].reason is None

        eventually(in_step, within_s=60, what="a position in step")
        return found[-1]


@pytest.fixture(params=["sequences", "transactions"])
def group(both: BothWays, unique: Callable[[str], str], request: pytest.FixtureRequest) -> Iterator[MovingGroup]:
    made = MovingGroup(both, both.topics(), unique("g.moving"), WAYS[request.param])
    yield made
    made.close()


@pytest.mark.parametrize("moves", [2, 12])
def test_a_group_that_moves_skips_nothing_and_reads_again_what_is_counted(group: MovingGroup, moves: int) -> None:
    for move in range(moves):
        side = move % 2
        group.write(move)
        group.copy()
        group.copy()  # each flow passes what the other one has written
        group.consume(side)
        found = group.settled(side)
        there = group.position(1 - side)
        rest = group.values(1 - side, there)
        assert set(rest) >= group.written - group.read, "nothing is skipped"
        again = set(rest) & set(group.values(side, 0, group.position(side)))
        count, is_exact = found.read_again
        assert count == len(again) or (count > len(again) and not is_exact), (found, len(again))
        # At rest, no round of either flow moves the group.
        at_rest = group.position(A), group.position(B)
        for other in (1 - side, side):
            assert group.round(other).reason is None
        assert (group.position(A), group.position(B)) == at_rest


def copy_planned(pair: TwoClusters, topic: str, **policy: Any) -> None:
    """What the planner finds to be copied."""
    tp = TopicPartition(topic, 0)
    with Admin({"bootstrap.servers": pair.target.address}) as admin:
        progress = read_progress(admin, pair.flow, [tp]).get(tp)
    ranges = [one for one in pair.ranges(topic) if progress is None or progress.offset < one.end]
    if ranges:
        pair.complete(ranges, **LOCAL, **policy)


@pytest.mark.parametrize("way", WAYS)
def test_fences_of_one_flow_are_no_reason_for_fences_of_the_other_one(both: BothWays, way: str) -> None:
    """Their markers are offsets of that flow's source."""
    topic, ends = both.topics(), (both.there.source, both.there.target)
    for end in ends:
        for write in WRITERS:
            write(end, topic, [b"%d" % number for number in range(10)])
    reached: list[tuple[int, ...]] = []
    for _ in range(6):
        for pair in (both.there, both.back):
            copy_planned(pair, topic, **WAYS[way])
        reached.append(tuple(end.end(topic) for end in ends))
    assert len(set(reached[2:])) == 1, reached
    assert all(len(end.read(topic)) == 60 for end in ends)
