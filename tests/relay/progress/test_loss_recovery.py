"""The anchors that healing copies share: one read serves all of them, and so does its failure."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from mirror.client import TopicPartition
from mirror.errors import FlowError, KafkaTimeout
from mirror.relay.progress.anchors import Anchor
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.lookup.loss_recovery import TargetHealing
from mirror.relay.progress.target_log import TargetMark

TPS = [TopicPartition("t", partition) for partition in range(6)]
PROGRESS = Progress(offset=5, leader_epoch=None, source_cluster_id="s", topic_id="its-id")
MARK = TargetMark(topic_id="target-id", end=5)


class Site:
    """A progress topic without anchors, whose reads wait for :attr:`released`."""

    def __init__(self) -> None:
        self.reads = 0
        self.now_ms = 0
        self.error: KafkaTimeout | None = None
        self.released = threading.Event()
        self.released.set()
        self.healing = TargetHealing(
            "f", cast("Any", None), cast("Any", self), TPS, exactly_once=True, now=lambda: self.now_ms
        )

    def read_anchors(self, tps: frozenset[TopicPartition], timeout_ms: int) -> dict[TopicPartition, list[Anchor]]:
        self.reads += 1
        assert self.released.wait(10)
        self.now_ms += timeout_ms
        if self.error is not None:
            raise self.error
        return {tp: [] for tp in tps}

    def failure_of(self, tp: TopicPartition) -> BaseException:
        with pytest.raises((FlowError, KafkaTimeout)) as raised:
            self.healing.start_at_anchor(tp, PROGRESS, MARK, 0, MARK, 60_000)
        return raised.value


def test_copies_that_ask_during_a_read_share_its_failure() -> None:
    site = Site()
    site.error = KafkaTimeout("the progress topic is unavailable")
    site.released.clear()
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(site.failure_of, tp) for tp in TPS]
        site.released.set()
        failures = [one.result(20) for one in asked]
    assert (failures, site.reads) == ([site.error] * len(TPS), 1)


def test_failure_holds_for_seconds_only() -> None:
    site = Site()
    site.error = KafkaTimeout("the progress topic is unavailable")
    for tp in TPS:
        assert site.failure_of(tp) is site.error
    assert site.reads == 1
    site.error = None
    site.now_ms += 3_000
    assert "no anchor of it" in str(site.failure_of(TPS[0]))
    assert site.reads == 2


def test_anchors_are_read_again_after_some_seconds() -> None:
    site = Site()
    for reads in (1, 1, 2):
        assert isinstance(site.failure_of(TPS[0]), FlowError)
        assert site.reads == reads
        site.now_ms += 5_000
