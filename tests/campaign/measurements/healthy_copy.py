"""One broker that is source and target, for measurements without faults."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from typing import Any, Final

from mirror.client import LATEST, Admin, TopicPartition
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range, RangeResult
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from mirror.relay.task.copy_ranges import copy_ranges
from tests.e2e.broker_side import Side

RECORD: Final = 10_000
"""The default size of a record in bytes, which are random and so cannot be compressed."""


def whole(address: str, tps: Sequence[TopicPartition], flow: str, target_topic: str) -> list[Range]:
    """Return ranges of everything that ``tps``, of one topic, have now, to be copied into ``target_topic``."""
    with Admin({"bootstrap.servers": address}) as admin:
        ends = admin.list_offsets(dict.fromkeys(tps, LATEST))
        topic_id = str(admin.describe_topics([tps[0].topic])[tps[0].topic].topic_id)
        cluster_id = admin.describe_cluster().cluster_id
    return [
        Range(
            flow=flow,
            topic=tp.topic,
            target_topic=target_topic,
            partition=tp.partition,
            start=0,
            end=ends[tp].offset,
            source_cluster_id=cluster_id,
            topic_id=topic_id,
        )
        for tp in tps
    ]


class Pair:
    """Creates, fills and copies topics at one broker."""

    def __init__(self, address: str) -> None:
        self.side: Final = Side(address)

    def source(self, partitions: int, **config: object) -> list[TopicPartition]:
        """Create a topic and return its partitions."""
        topic = f"orders-{uuid.uuid4().hex[:8]}"
        self.side.create(topic, partitions, **config)
        return [TopicPartition(topic, number) for number in range(partitions)]

    def fill(self, tps: Sequence[TopicPartition], size: int, record: int = RECORD, **options: Any) -> None:
        """Write ``size`` bytes into each of ``tps``, in records of ``record`` bytes."""
        count, padding = max(1, size // record), random.Random(1).randbytes(record)
        for tp in tps:
            values = (b"%d:" % number + padding for number in range(count))
            self.side.fill(tp.topic, values, tp.partition, queue_buffering_max_messages=10_000, **options)

    def ranges(self, tps: Sequence[TopicPartition], **config: object) -> list[Range]:
        """Return ranges of everything in ``tps``, into a new topic by a new flow."""
        topic, flow = f"copy-{uuid.uuid4().hex[:8]}", f"plain-{uuid.uuid4().hex[:8]}"
        self.side.create(topic, len(tps), **config)
        for own in (topic_of(flow), offset_topic_of(flow)):
            self.side.create(own, cleanup_policy="compact")
        return whole(self.side.address, tps, flow, topic)

    def copy(self, ranges: Sequence[Range], policy: CopyPolicy, **options: object) -> list[RangeResult]:
        """Copy with ``options`` of the producer, with underscores for dots."""
        own = {key.replace("_", "."): value for key, value in options.items()}
        return copy_ranges(
            ranges,
            source_options={"bootstrap.servers": self.side.address},
            target_options={"bootstrap.servers": self.side.address, **own},
            policy=policy,
        )
