"""Whole copies write anchors to the progress topic. Real clients, brokers in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mirror.client import TopicPartition
from mirror.relay.model.ranges import Outcome
from mirror.relay.progress import anchors
from mirror.relay.progress.anchors import Anchor
from mirror.relay.progress.flow_topic import topic_of
from mirror.relay.progress.progress_topic import ProgressTopic
from tests.relay.fake_pair import FLOW, FakePair

TARGET = TopicPartition("paris.t", 0)
WAYS: dict[str, dict[str, Any]] = {
    "transactions": {"exactly_once_by": "transactions"},
    "sequences": {"exactly_once_by": "auto"},
    "at least once": {"exactly_once": False},
}


def _anchors(pair: FakePair) -> list[Anchor]:
    topic = ProgressTopic({"bootstrap.servers": pair.target.bootstrap}, FLOW)
    return sorted(topic.read_anchors([TARGET], 10_000)[TARGET], key=lambda one: one.number)


@pytest.mark.parametrize("way", WAYS)
def test_copy_writes_an_anchor_at_its_start_and_counts_on(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    options = dict(WAYS[way])
    pair = FakePair(monkeypatch, exactly_once=options.pop("exactly_once", True))
    pair.write(b"0", b"1", b"2")
    assert pair.copy(**options).outcome is Outcome.COMPLETE
    (first,) = _anchors(pair)
    assert (first.number, first.offset, first.target.end) == (0, 0, 0)
    monkeypatch.setattr(anchors, "INTERVAL_MS", 0)
    pair.write(b"3")
    assert pair.copy(**options).outcome is Outcome.COMPLETE
    last = _anchors(pair)[-1]
    records = [one for one in pair.log().batches() if not one.is_control]
    assert last.number >= 1
    assert (last.offset, last.target.end) == (4, records[-1].next_offset)
    assert last.exactly_once is (way != "at least once")
    assert last.target.topic_id == str(pair.target.topics["paris.t"].topic_id)


def test_copy_is_complete_although_anchors_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair(monkeypatch)
    del pair.target.topics[topic_of(FLOW)]
    pair.write(b"0", b"1", b"2")
    result = pair.copy()
    assert (result.outcome, result.records) == (Outcome.COMPLETE, 3), result.error
    assert json.loads(pair.metadata())["anchor"][0] == 0
