"""A round reads what is new in the offset index, and not all of it. Real clients, brokers in memory."""

from __future__ import annotations

from typing import Any

import pytest

from mirror.relay.offsets import offset_topic
from mirror.relay.progress.flow_topic import FlowTopic, offset_topic_of
from mirror.relay.progress.followed_topic import FollowedTopic, News
from tests.groups.sync_site import Site, only
from tests.relay.fake_pair import FLOW


def test_a_round_reads_what_is_new_in_the_index_only(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_topic, "_TIDIED_EVERY", 10**9)  # a random merge writes all segments again
    read: list[int] = []
    news, records = FollowedTopic.news, FlowTopic.records

    def counted(self: FollowedTopic, *arguments: Any) -> News:
        found = news(self, *arguments)
        if self._topic.tp.topic == offset_topic_of(FLOW):
            read.append(len(found.records))
        return found

    def all_of(self: FlowTopic, *arguments: Any) -> Any:
        found = list(records(self, *arguments))
        if self.tp.topic == offset_topic_of(FLOW):
            read.append(len(found))
        return iter(found)

    for _ in range(5):
        site.pair.write(b"more")
        site.pair.copy()
    stored = site.pair.target.log(offset_topic_of(FLOW)).end_offset
    sync = site.sync()
    monkeypatch.setattr(FollowedTopic, "news", counted)
    monkeypatch.setattr(FlowTopic, "records", all_of)
    for offset in (100, 137, 147):
        site.commit(offset)
        assert only(sync.round()).reason is None
    site.pair.write(b"new")
    site.pair.copy()
    site.commit(256)
    read_before = len(read)
    assert only(sync.round()).reason is None
    assert read[:3] == [stored, 0, 0]
    assert 1 <= sum(read[read_before:]) < stored
