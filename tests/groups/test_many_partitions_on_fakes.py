"""A group with many partitions takes several requests, and the intents of many groups few."""

from __future__ import annotations

import pytest

from mirror.client import TopicPartition
from mirror.wire.api import Api
from tests.groups.sync_site import GROUP, Site
from tests.relay.fake_pair import FakePair

PARTITIONS = 150


def test_the_intents_of_many_groups_are_few_batches(site: Site) -> None:
    """Batches of the default size, each sent as soon as it has begun, would be three at least."""
    for number in range(300):
        site.commit(105, group=f"billing-of-a-department-{number}")
    before = len(site.pair.target.calls(Api.PRODUCE))
    assert site.sync().round().in_step == 300
    assert len(site.pair.target.calls(Api.PRODUCE)) <= before + 2


def test_all_partitions_of_a_large_group_are_brought_over(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair(monkeypatch, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        pair.write(*(b"%d" % number for number in range(3)), partition=partition)
    pair.copy_all()
    site = Site(pair)
    for offset in (1, 3):
        for partition in range(PARTITIONS):
            site.commit(offset, metadata="m" * 4_000, tp=TopicPartition("t", partition))
    sync = site.sync()
    report = sync.round()
    assert report.groups[GROUP].is_in_step
    assert len(report.groups[GROUP].positions) == PARTITIONS
    found = {(tp, one.offset, one.metadata) for tp, one in pair.target.groups[GROUP].items()}
    assert found == {(TopicPartition("paris.t", partition), 3, "m" * 4_000) for partition in range(PARTITIONS)}
    assert len(pair.target.calls(Api.OFFSET_COMMIT)) > 1
    site.close()
