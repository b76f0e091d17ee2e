"""A consumer fails over to the target, reads on there, and comes back to the source. Real clusters, confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition

from mirror.groups.clusters import FlowAccess
from mirror.groups.commit_decision import Reason
from mirror.groups.routes import CopyingFlow, Partners
from mirror.groups.rules import GroupRules
from mirror.groups.sync import GroupSync
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.progress.flow_topic import group_topic_of
from mirror.runtime.clock import SystemClock
from tests.copying.group_site import commit, committed_at, consumer_of, group_sync
from tests.copying.pair import End, TwoClusters
from tests.copying.test_groups import _asked, _at, _only, _records, _values, _written
from tests.copying.writers import batch_of, write_batches

pytestmark = pytest.mark.brokers

_RECORDS: Final = 250


@pytest.fixture
def name(unique: Callable[[str], str]) -> str:
    return unique("g.billing")


@pytest.fixture
def topic(pair: TwoClusters) -> str:
    """250 records, at other offsets on the target, where 33 were before."""
    topic = pair.topics()
    write_batches(pair.target.address, topic, [batch_of(_records(1_000, 33))])
    _written(pair, topic, 0, _RECORDS)
    pair.complete(topic, start_over=True)
    return topic


def _read(end: End, group: str, topic: str, count: int, committed: int) -> list[bytes]:
    """What a consumer of ``group`` reads from its position on; it commits behind the first ``committed`` of them."""
    with consumer_of(end, group, auto_offset_reset="earliest") as consumer:
        at = committed_at(end, group, topic)[0]
        consumer.assign([ConfluentPartition(topic, 0, max(0, at))])
        messages: list[Any] = []
        while len(messages) < count:
            messages += consumer.consume(count - len(messages), timeout=1)
        consumer.commit(message=messages[committed - 1], asynchronous=False)
        return [message.value() for message in messages]


def _expected(first: int, count: int) -> list[bytes]:
    return [b"v%d" % number for number in range(first, first + count)]


def test_a_consumer_fails_over_and_back_with_no_record_skipped(
    pair: TwoClusters, topic: str, name: str, tmp_path: Path
) -> None:
    commit(pair.source, name, topic, 0)
    assert _read(pair.source, name, topic, 120, committed=100) == _expected(0, 120)
    with group_sync(pair, topic) as sync:
        assert _only(sync, name).reason is None
        # The source is lost after 20 more records were committed there: only these are read again.
        commit(pair.source, name, topic, 120)
        assert _read(pair.target, name, topic, 60, committed=50) == _expected(100, 60)
        assert _only(sync, name).reason is Reason.TAKEN_OVER
        status, found = _asked(pair, tmp_path, topic, name, "--reverse")
        (back,) = found["positions"]
        assert (status, back["pending"], back["written"], back["source_offset"]) == (3, True, False, 150)
        assert committed_at(pair.source, name, topic)[0] == 120, "nothing is written without --commit"
        status, found = _asked(pair, tmp_path, topic, name, "--reverse", "--commit")
        (back,) = found["positions"]
        assert (status, back["written"], back["committed_source_offset"], found["problems"]) == (0, True, 150, [])
        # The ten that were read, and not committed, on the target.
        assert _read(pair.source, name, topic, 100, committed=90) == _expected(150, 100)
        # The forward sync has undone nothing, and follows the group again.
        assert _only(sync, name).reason is None
    assert committed_at(pair.source, name, topic)[0] == 240
    assert committed_at(pair.target, name, topic)[0] == _at(pair, topic, 240)
    with consumer_of(pair.target, name) as consumer:
        consumer.assign([ConfluentPartition(topic, 0, committed_at(pair.target, name, topic)[0])])
        assert _values(consumer, 10) == _expected(240, 10)


def test_records_that_were_written_on_the_target_only_are_said(
    pair: TwoClusters, topic: str, name: str, tmp_path: Path
) -> None:
    write_batches(pair.target.address, topic, [batch_of(_records(2_000, 10))])
    commit(pair.target, name, topic, _at(pair, topic, 2_003))
    status, found = _asked(pair, tmp_path, topic, name, "--reverse", "--commit")
    (back,) = found["positions"]
    assert (status, back["place"], back["written"]) == (0, "end", True)
    assert back["not_on_source"] == {"in_front": 3, "behind": 7}
    assert committed_at(pair.source, name, topic)[0] == _RECORDS
    _written(pair, topic, _RECORDS, 10)
    assert _read(pair.source, name, topic, 10, committed=10) == _expected(_RECORDS, 10)


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.cluster)])
def test_a_group_with_members_on_the_source_keeps_its_position(
    pair: TwoClusters, topic: str, name: str, tmp_path: Path, protocol: str
) -> None:
    commit(pair.target, name, topic, _at(pair, topic, 200))
    with consumer_of(pair.source, name, group_protocol=protocol, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        assert _values(consumer, 1) == [b"v0"]
        status, found = _asked(pair, tmp_path, topic, name, "--reverse", "--commit")
    assert (status, found["positions"][0]["reason"]) == (3, "active-on-source")
    assert committed_at(pair.source, name, topic)[0] < 0
    status, found = _asked(pair, tmp_path, topic, name, "--reverse", "--commit")
    assert (status, committed_at(pair.source, name, topic)[0]) == (0, 200)


def _both_ways(pair: TwoClusters, topic: str) -> tuple[GroupSync, GroupSync]:
    """The rounds of the flow, and those of a flow in the other direction that copies nothing."""

    def same(name: str) -> str | None:
        return name if name == topic else None

    back = f"{pair.flow}-back"
    for end, flow in ((pair.target, pair.flow), (pair.source, back)):
        if group_topic_of(flow) not in end.topics():
            end.create(group_topic_of(flow), cleanup_policy="compact")
    source, target = ({"bootstrap.servers": end.address} for end in (pair.source, pair.target))
    rules = GroupRules(includes=lambda group: group.startswith("g."), target_topic=same, source_topic=same)
    nothing = GroupRules(includes=rules.includes, target_topic=lambda _: None, source_topic=lambda _: None)
    ahead = FlowAccess(name=pair.flow, source_options=source, target_options=target, policy=CopyPolicy())
    copying = CopyingFlow(access=ahead, rules=rules, writes=True)
    returning = FlowAccess(name=back, source_options=target, target_options=source, policy=CopyPolicy())
    return (
        GroupSync(ahead, rules, SystemClock(), Partners(opposite=back)),
        GroupSync(returning, nothing, SystemClock(), Partners(copying=(copying,))),
    )


def test_a_consumer_moves_there_and_back_by_itself_with_flows_in_both_directions(
    pair: TwoClusters, topic: str, name: str
) -> None:
    commit(pair.source, name, topic, 0)
    ahead, back = _both_ways(pair, topic)
    with ahead, back:
        for number in range(4):
            side, other = (pair.source, pair.target) if number % 2 == 0 else (pair.target, pair.source)
            first = 50 * number
            assert _read(side, name, topic, 60, committed=50) == _expected(first, 60)
            reasons = [_only(sync, name).reason for _ in range(2) for sync in (ahead, back)]
            assert reasons[2:] == [None, None]
            at = first + 50
            assert committed_at(pair.source, name, topic)[0] == at
            assert committed_at(pair.target, name, topic)[0] == _at(pair, topic, at)
            assert committed_at(other, name, topic)[0] > 0
