"""Two flows copy a topic in both directions under one name, and bring a group over. Real clients, brokers in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

import pytest

from mirror.groups.clusters import FlowAccess
from mirror.groups.commit_decision import Reason
from mirror.groups.positions import GroupPosition
from mirror.groups.reverse import ReverseGroups
from mirror.groups.routes import CopyingFlow, Partners
from mirror.groups.rules import GroupRules
from mirror.groups.sync import GroupSync
from mirror.relay.model.ranges import Outcome
from mirror.relay.model.way import Way
from mirror.runtime.clock import SystemClock
from tests.examples import crossed
from tests.fakes.cluster import GroupOffset
from tests.groups.sync_site import GROUP, only
from tests.relay.both_directions import FLOWS, TP, A, B, CopiesBothWays
from tests.relay.fake_pair import FakePair


class BothDirections(CopiesBothWays):
    """Also brings a group over."""

    def __init__(self, pair: FakePair, way: Way) -> None:
        super().__init__(pair, way)
        self.syncs: Final = [self._sync(side) for side in (A, B)]

    @property
    def _rules(self) -> GroupRules:
        def same(topic: str) -> str | None:
            return topic if topic == TP.topic else None

        return GroupRules(includes=lambda group: group == GROUP, target_topic=same, source_topic=same)

    def _access(self, side: int) -> FlowAccess:
        source, target = self.options(side)
        return FlowAccess(name=FLOWS[side], source_options=source, target_options=target, policy=self.policy)

    def _copying(self, side: int) -> CopyingFlow:
        return CopyingFlow(access=self._access(side), rules=self._rules, writes=True)

    def way_back(self, side: int) -> ReverseGroups:
        """Of the flow that copies from ``side``."""
        other = self._copying(1 - side)
        return ReverseGroups(self._access(side), self._rules, SystemClock(), lambda *_: other)

    def _sync(self, side: int) -> GroupSync:
        other = self._copying(1 - side)
        partners = Partners(opposite=other.name, copying=(other,))
        return GroupSync(self._access(side), self._rules, SystemClock(), partners)

    def close(self) -> None:
        for sync in self.syncs:
            sync.close()

    def copy_all(self) -> None:
        """Until each flow has passed what the other one has written, but for a last marker."""
        for _ in range(2):
            self.copy()

    def copy(self) -> None:
        """What each flow has to copy."""
        for side in (A, B):
            if self.progress(side) < self.clusters[side].log(TP.topic).end_offset:
                result = self.copy_from(side)
                assert result.outcome is Outcome.COMPLETE, result.error

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


@pytest.mark.parametrize(
    ("site", "read"), crossed([Way.SEQUENCES, Way.TRANSACTIONS], [3, 10, 12, 15]), indirect=["site"]
)
def test_a_group_goes_home_while_the_flow_that_brought_it_away_is_held(site: BothDirections, read: int) -> None:
    """Its progress stays in front of the copies that the way home makes: it has none of them to pass."""
    site.write(A, *(b"%d" % number for number in range(10)))
    site.copy_all()
    site.write(B, *(b"new %d" % number for number in range(5)))
    site.consume(B, read)
    assert site.copy_from(B).outcome is Outcome.COMPLETE
    position = site.round(B)
    assert (position.reason, position.read_again) == (None, (0, True))
    assert site.values(A, site.committed(A)) == site.values(B, site.committed(B))


def test_a_group_goes_home_in_front_of_what_only_home_has(site: BothDirections) -> None:
    site.write(A, b"1", b"2")
    site.copy_all()
    site.write(A, b"only at home")
    site.write(B, b"3", b"4")
    site.consume(B, 3)
    assert site.copy_from(B).outcome is Outcome.COMPLETE
    position = site.round(B)
    assert position.reason is Reason.NOT_COPIED_BACK
    assert f"{TP} has records of its own from offset {site.committed(A)} on that flow there has not" in position.detail
    assert site.values(A, site.committed(A)) == [b"only at home", b"3", b"4"]
    site.consume(B, 1)
    assert site.round(B).reason is Reason.NOT_COPIED_BACK, "also where no copy is behind the record"
    site.copy_all()
    assert site.round(B).reason is None


def test_without_the_other_flow_s_progress_nothing_is_guessed(site: BothDirections) -> None:
    site.write(A, b"1", b"2")
    site.write(B, b"3")
    site.copy()
    for group in [name for name in site.clusters[A].groups if name.startswith("mirror.")]:
        del site.clusters[A].groups[group]
    site.consume(A, 1)
    position = site.round(A)
    assert (position.reason, position.detail) == (Reason.UNKNOWN, "flow back has no progress of both-0")


def test_the_fence_of_one_flow_is_no_reason_for_a_fence_of_the_other_one(site: BothDirections) -> None:
    """Its marker is an offset of that flow's source. Otherwise each run of either would write another one for ever."""
    site.write(A, b"1", b"2")
    site.write(B, b"3")
    for _ in range(2):
        site.copy()
    at_rest = [cluster.log(TP.topic).end_offset for cluster in site.clusters]
    for _ in range(3):
        site.copy()
    assert [cluster.log(TP.topic).end_offset for cluster in site.clusters] == at_rest
    site.write(A, b"4")
    site.copy_all()
    assert site.values(A) == [b"1", b"2", b"3", b"4"]
    assert sorted(site.values(B)) == [b"1", b"2", b"3", b"4"]


def test_the_way_back_by_hand_skips_nothing_and_counts_what_is_read_again(site: BothDirections) -> None:
    for number in range(3):
        site.write(A, *(b"%d of A in %d" % (each, number) for each in range(3)))
        site.write(B, *(b"%d of B in %d" % (each, number) for each in range(2)))
        site.copy_all()
    read = set(site.consume(A, 4))
    assert site.round(A).reason is None
    read |= set(site.consume(B, 5))
    with site.way_back(A) as way_back:
        (position,), problems = way_back.read()
        assert (position.is_due, problems) == (True, []), position
        (position,), problems = way_back.commit(resume=True)
    assert (position.written, problems) == (True, []), position
    assert site.committed(A) == position.translation.offset
    rest = site.values(A, site.committed(A))
    assert {*site.values(A)} - read <= set(rest), "nothing is skipped"
    again = set(rest) & set(site.values(B, 0, site.committed(B)))
    assert position.read_again == (len(again), True)
    # Rounds move it only once it has read on: translated again, the position on the target would be in front of it.
    at_rest = site.committed(A), site.committed(B)
    assert [site.round(side).reason for side in (B, A, B)] == [None, Reason.BEHIND, None]
    assert (site.committed(A), site.committed(B)) == at_rest
