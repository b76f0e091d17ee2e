"""New groups are found by listing them each second, and get their positions at once. Real clusters."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import pytest

from mirror.client import Admin, OffsetAndMetadata, TopicPartition
from mirror.errors import Fenced
from mirror.groups.positions import GroupsReport
from mirror.groups.sync import GroupSync
from mirror.spark.driver.rounds.periodic_rounds import PeriodicRounds, RoundKind
from mirror.spark.driver.rounds.reconciling import GROUPS
from tests.copying.group_site import group_sync
from tests.copying.pair import End, TwoClusters
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(240)]

_GROUPS: Final = 1_000
_RECORDS: Final = 100
_INTERVAL_MS: Final = 25_000
"""A round that is due brings what a slow coordinator has not answered: such groups are not asked for again for 20 s."""
_FOUND_WITHIN_S: Final = 5.0
"""Listings begin a second after each other, or after a round; a busy machine takes longer."""


class _Watched:
    """The rounds of groups, with the times at which one has begun."""

    def __init__(self, sync: GroupSync) -> None:
        self._sync: Final = sync
        self.began_s: Final[list[float]] = []

    def round(self, *, last: bool = False) -> GroupsReport:
        self.began_s.append(time.monotonic())
        return self._sync.round(last=last)

    def has_news(self) -> bool:
        return self._sync.has_news()

    def fenced(self, error: Fenced) -> GroupsReport:
        return self._sync.fenced(error)

    def network_ms(self) -> int:
        return 0  # a test of 1,000 groups is not to wait because a round has taken more than a tenth of a core


def _commit(end: End, offsets: Mapping[str, int], topic: str) -> None:
    """As consumers with assigned partitions do, many groups at once."""
    with Admin({"bootstrap.servers": end.address}) as admin:
        calls = {
            group: admin.commit_group_offsets_async(group, {TopicPartition(topic, 0): OffsetAndMetadata(offset)})
            for group, offset in offsets.items()
        }
        for group, call in calls.items():
            assert not call.result().failed, group


def _committed(end: End, groups: Mapping[str, int], topic: str) -> dict[str, int]:
    with Admin({"bootstrap.servers": end.address}) as admin:
        found = admin.offsets_of_groups_async(tuple(groups), 30_000).result()
    assert not found.failed
    return {group: found[group][TopicPartition(topic, 0)].offset for group in found if found[group]}


@contextlib.contextmanager
def _running(sync: GroupSync) -> Iterator[tuple[_Watched, list[GroupsReport]]]:
    watched, reports = _Watched(sync), list[GroupsReport]()
    kind = RoundKind(
        subject=GROUPS,
        interval_ms=_INTERVAL_MS,
        on_report=reports.append,
        problems=lambda report: report.problems,
        failed=lambda _, problem: GroupsReport(problems=(problem,)),
        news_ms=1_000,
    )
    rounds = PeriodicRounds(lambda: contextlib.nullcontext(watched), kind, lambda _: None)
    with rounds:
        yield watched, reports


def test_new_groups_are_found_within_a_second_and_have_their_positions(
    pair: TwoClusters, unique: Callable[[str], str]
) -> None:
    topic = unique("t")
    for end in (pair.source, pair.target):
        end.create(topic)
    pair.own_topics()
    pair.source.fill(topic, (b"%d" % number for number in range(_RECORDS)))
    pair.complete(pair.ranges(topic), start_over=True)
    copies = [offset for offset, _ in pair.target.seen(topic)]
    prefix = unique("g.new")
    offsets = {f"{prefix}-{number}": number % _RECORDS for number in range(_GROUPS)}
    expected = {group: copies[offset] for group, offset in offsets.items()}
    first = unique("g.first")
    with group_sync(pair, topic) as sync, _running(sync) as (watched, reports):
        eventually(lambda: reports, what="the first round")
        _commit(pair.source, {first: 7}, topic)
        committed_s = time.monotonic()
        eventually(lambda: len(watched.began_s) > 1, what="the round of a new group")
        assert watched.began_s[1] - committed_s < _FOUND_WITHIN_S
        _commit(pair.source, offsets, topic)
        committed_s = time.monotonic()
        eventually(lambda: reports[-1].groups.keys() >= offsets.keys(), what="all groups in a report", every_s=0.2)
        assert watched.began_s[2] - committed_s < _FOUND_WITHIN_S

        def arrived() -> bool:
            """A group whose coordinator was too slow is in the report, and gets its position later."""
            report = reports[-1]
            late = {group for group in offsets if not report.groups[group].is_in_step}
            there = _committed(pair.target, offsets, topic)
            assert {
                group: offset for group, offset in expected.items() if group not in late and there.get(group) != offset
            } == {}
            return not late

        eventually(arrived, within_s=90, what="the positions of all groups", every_s=0.5)
        assert _committed(pair.target, {first: 7}, topic) == {first: copies[7]}
