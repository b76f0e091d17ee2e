"""Leaders that do not answer keep no other partitions from being translated. Real clients, brokers in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from mirror.client import TopicPartition
from mirror.groups import clusters
from mirror.groups.commit_decision import Reason
from mirror.relay.offsets.translator import OffsetTranslator, Patience
from mirror.relay.progress.flow_topic import offset_topic_of
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.clock import FakeClock
from tests.fakes.control import Action
from tests.groups.sync_site import Site, only
from tests.relay.fake_pair import FLOW, FakePair

WELL, SICK = TopicPartition("t", 0), TopicPartition("t", 1)
SICK_NODE = 2


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(clusters, "PATIENCE", Patience(answer_ms=2_000, stall_ms=1_000))
    pair = FakePair(monkeypatch, source_brokers=2, brokers=2, partitions=2)
    for partition in (0, 1):
        pair.write(*(b"%d" % number for number in range(50)), partition=partition)
    made = Site(pair)
    yield made
    made.close()


def _groups(site: Site) -> None:
    site.commit(20, group="well", tp=WELL)
    for number in range(5):
        site.commit(20 + number, group=f"sick {number}", tp=SICK)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("api", [Api.LIST_OFFSETS, Api.OFFSET_FOR_LEADER_EPOCH])
def test_a_leader_that_does_not_answer_holds_up_its_own_partitions_only(site: Site, side: str, api: Api) -> None:
    site.pair.copy_all()
    _groups(site)
    clock = FakeClock()
    sync = site.sync(clock=clock)
    cluster, topic = (site.pair.source, "t") if side == "source" else (site.pair.target, "paris.t")
    held = cluster.control.on(api, Action(hold="before"), times=None, node=SICK_NODE)
    report = sync.round()
    assert only(report, "well").reason is None
    for number in range(5):
        position = only(report, f"sick {number}")
        assert (position.reason, position.target_offset) == (Reason.UNAVAILABLE, None)
        assert f"{topic}-1" in position.detail
    held.release()
    clock.advance(20_000)
    assert sync.round().in_step == 6


def test_a_leader_that_has_not_answered_is_asked_again_after_its_rest(site: Site) -> None:
    site.pair.copy_all()
    _groups(site)
    clock = FakeClock()
    sync = site.sync(clock=clock)
    site.pair.source.control.on(Api.LIST_OFFSETS, Action(hold="before"), times=None, node=SICK_NODE)
    asked, details = [], set()
    for _ in range(4):
        report = sync.round()
        assert only(report, "well").reason is None
        assert only(report, "sick 0").reason is Reason.UNAVAILABLE
        details.add(only(report, "sick 0").detail)
        asked.append(len([one for one in site.pair.source.calls(Api.LIST_OFFSETS) if one.node == SICK_NODE]))
        clock.advance(10_000)
    assert asked[0] == asked[1] < asked[2] == asked[3]
    assert "broker 2, the leader of t-1, has not answered; it is asked again" in details


def test_progress_that_cannot_be_read_holds_up_its_own_partitions_only(site: Site) -> None:
    site.pair.copy_all()
    _groups(site)
    refused = Action(errors={TopicPartition("paris.t", 1): errors.TOPIC_AUTHORIZATION_FAILED})
    site.pair.target.control.on(Api.OFFSET_FETCH, refused, times=None)
    report = site.sync().round()
    assert only(report, "well").reason is None
    assert "the permission Describe on the topic is missing" in only(report, "sick 0").detail


def test_a_log_that_cannot_be_read_costs_one_timeout_for_all_groups_of_its_partition(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = site.pair.target.topics.pop(offset_topic_of(FLOW))
    site.pair.copy_all()
    site.pair.target.topics[offset_topic_of(FLOW)] = topic
    _groups(site)
    reads: Counter[TopicPartition] = Counter()
    runs_in = OffsetTranslator._extents_in

    def counted(self: OffsetTranslator, hole: Any, logs: Any, ids: Any) -> Any:
        reads[logs.source] += 1
        return runs_in(self, hole, logs, ids)

    monkeypatch.setattr(OffsetTranslator, "_extents_in", counted)
    site.pair.source.control.on(Api.FETCH, Action(hold="before"), times=None, node=SICK_NODE)
    report = site.sync().round()
    assert only(report, "well").reason is None  # read after the others, by the same consumer
    assert {only(report, f"sick {number}").reason for number in range(5)} == {Reason.UNAVAILABLE}
    assert "could be read up to offset 0 only" in only(report, "sick 4").detail
    assert reads[SICK] == 1
