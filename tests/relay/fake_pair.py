"""Two clusters in memory with a whole copy between them: the real clients, each cluster behind a network thread."""

from __future__ import annotations

import itertools
from typing import Any, Final

import pytest

from mirror.cluster.settings import ClusterSettings
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range, RangeResult
from mirror.relay.model.way import Way
from mirror.relay.progress.committed import group_of
from mirror.relay.progress.flow_topic import offset_topic_of, status_topic_of, topic_of
from mirror.relay.progress.lookup import lookups
from mirror.relay.task.copy_ranges import copy_ranges
from mirror.relay.task.reporting import SendReport
from mirror.relay.task.taking import Selection
from mirror.wire.records import TRANSACTIONAL
from tests.fakes.cluster import FakeCluster
from tests.fakes.log import PartitionLog
from tests.fakes.record_batches import values_of
from tests.fakes.threaded import connect

FLOW = "flow"
_NUMBERS: Final = itertools.count(1)


class FakePair:
    """Source topic "t", target topic "paris.t"; a log of ``partitions`` each."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        brokers: int = 1,
        source_brokers: int = 1,
        partitions: int = 1,
        exactly_once: bool = True,
        source_release: str | None = None,
    ) -> None:
        """``brokers`` are those of the target; ``source_release`` as in :class:`FakeCluster`."""
        self.source = FakeCluster(source_brokers, cluster_id="paris", release=source_release)
        self.target = FakeCluster(brokers, cluster_id="berlin")
        # Clients of the same addresses share a network thread: one that an earlier test has left must not be found.
        number = next(_NUMBERS)
        for side, cluster in (("source", self.source), ("target", self.target)):
            for broker in cluster.brokers.values():
                broker.host = f"{side}-{number}-{broker.node}.fake"
        # One time for both: who copies compares moments of the two.
        self.source.clock = self.target.clock
        self.source.add_topic("t", partitions)
        self.target.add_topic("paris.t", partitions)
        for own in (topic_of(FLOW), offset_topic_of(FLOW), status_topic_of(FLOW)):
            self.target.add_topic(own)
        self.partitions, self.exactly_once = partitions, exactly_once

        def cluster_of(settings: ClusterSettings) -> FakeCluster:
            side, own = settings.bootstrap[0][0].split("-")[:2]
            assert own == str(number), f"a client of another test: {settings.bootstrap}"
            return self.source if side == "source" else self.target

        connect(monkeypatch, cluster_of)
        # Still a second of the fakes' clock, which runs ten times as fast as the wall's.
        monkeypatch.setattr(lookups, "_CONFIRM_AFTER_S", 0.1)

    def write(self, *values: bytes, partition: int = 0) -> None:
        self.source.log("t", partition).append_values(*values)

    def range_of(self, partition: int = 0, first: int | None = 0) -> Range:
        """As planned: from the progress, else from the beginning, to the source's end."""
        kept = self.committed(partition)
        return Range(
            flow=FLOW,
            topic="t",
            target_topic="paris.t",
            partition=partition,
            start=0 if kept is None else kept,
            end=self.source.log("t", partition).end_offset,
            source_cluster_id="paris",
            topic_id=str(self.source.topics["t"].topic_id) if self.source.has_topic_ids else "",
            first=first,
        )

    def copy_all(
        self,
        ranges: list[Range] | None = None,
        *,
        send: SendReport | None = None,
        flow: str = "",
        selection: Selection | None = None,
        **policy: Any,
    ) -> list[RangeResult]:
        policy = {"exactly_once_by": Way.TRANSACTIONS, **policy}  # tests of the other ways name them
        options = {"default.api.timeout.ms": 30_000, "request.timeout.ms": 2_000}
        return copy_ranges(
            [self.range_of(partition) for partition in range(self.partitions)] if ranges is None else ranges,
            source_options={"bootstrap.servers": self.source.bootstrap, **options},
            target_options={"bootstrap.servers": self.target.bootstrap, "delivery.timeout.ms": 8_000, **options},
            policy=CopyPolicy(exactly_once=self.exactly_once, **policy),
            send=send,
            flow=flow,
            selection=selection,
        )

    def copy(self, **policy: Any) -> RangeResult:
        (result,) = self.copy_all([self.range_of()], **policy)
        return result

    # --- the target

    def log(self, partition: int = 0) -> PartitionLog:
        return self.target.log("paris.t", partition)

    def made_again(self, *, offsets_too: bool = True) -> None:
        """The target topic is deleted, with what groups committed for it, and made again."""
        self.target.add_topic("paris.t", self.partitions)
        if offsets_too:
            for offsets in self.target.groups.values():
                for tp in [tp for tp in offsets if tp.topic == "paris.t"]:
                    del offsets[tp]

    def committed(self, partition: int = 0) -> int | None:
        for group, offsets in self.target.groups.items():
            for tp, one in offsets.items():
                if tp == ("paris.t", partition) and group == group_of(FLOW, tp):
                    return one.offset
        return None

    def metadata(self) -> str:
        (found,) = [
            one.metadata or "" for each in self.target.groups.values() for tp, one in each.items() if tp[0] == "paris.t"
        ]
        return found

    def set_metadata(self, metadata: str) -> None:
        for offsets in self.target.groups.values():
            for tp, one in offsets.items():
                if tp.topic == "paris.t":
                    one.metadata = metadata

    def values(self, partition: int = 0) -> list[bytes]:
        """What a reader of committed records finds."""
        log = self.log(partition)
        return [
            value
            for one in log.batches()
            if not one.is_control
            and not any(
                each.producer_id == one.producer_id and each.first_offset <= one.base_offset <= each.last_offset
                for each in log.aborted
            )
            for value in values_of(one.view)
        ]

    def aborted_write(self, *values: bytes, producer_id: int = 99) -> None:
        self.log().append_values(*values, attributes=TRANSACTIONAL, producer_id=producer_id)
        self.log().end_transaction(producer_id, commit=False)
