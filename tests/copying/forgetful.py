"""Copies whose progress the target forgets: one topic and one flow for each case."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

import mirror.client
from mirror.client import Admin
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.model.way import Way
from mirror.relay.progress.committed import group_of, lazy_group_of
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from mirror.relay.task.copy_ranges import copy_ranges
from tests.campaign.kills.attempt import AttemptOrder
from tests.campaign.kills.attempt_process import AttemptProcess
from tests.e2e.broker_side import FIRST_MS, WITHIN_S, Side
from tests.polling import eventually

FORGETFUL: Final = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "1000",
    # Records are deleted by retention within a test's time as well.
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "100",
}
_PORTION: Final = 50
_OFFSETS: Final = "__consumer_offsets"


class Copying:
    """One flow over one partition, from and to topics of its own. ``values`` are what was written to the source."""

    def __init__(
        self,
        source: Side,
        target: Side,
        *,
        exactly_once: bool = True,
        by: str = Way.TRANSACTIONS,
        retention_ms: int = -1,
    ) -> None:
        """``by`` is the way; by sequences, records are young."""
        name = uuid.uuid4().hex[:12]
        self.topic: Final = f"orders-{name}"
        self.flow: Final = f"flow-{name}"
        self.target_topic: Final = f"a.{self.topic}"
        self.values: Final = list[bytes | None]()
        self.source: Final = source
        self.target: Final = target
        self._policy: Final = CopyPolicy(exactly_once=exactly_once, exactly_once_by=by)
        source.create(self.topic)
        target.create(self.target_topic, retention_ms=retention_ms)
        self.make_notes()
        with Admin({"bootstrap.servers": source.address}) as admin:
            self._cluster_id = admin.describe_cluster().cluster_id
            self._topic_id = str(admin.describe_topics([self.topic])[self.topic].topic_id)

    def write(self, count: int = _PORTION) -> None:
        """To the source."""
        values = [b"%d" % (len(self.values) + n) for n in range(count)]
        made_ms = int(time.time() * 1000) if self._policy.exactly_once_by == Way.SEQUENCES else FIRST_MS
        self.source.fill(self.topic, values, first_ms=made_ms)
        self.values.extend(values)

    def _order(self, start: int, policy: CopyPolicy, hold: tuple[str, int] | None = None) -> AttemptOrder:
        one = Range(
            flow=self.flow,
            topic=self.topic,
            target_topic=self.target_topic,
            partition=0,
            start=start,
            end=self.source.end(self.topic),
            source_cluster_id=self._cluster_id,
            topic_id=self._topic_id,
        )
        ends = {"bootstrap.servers": self.source.address}, {"bootstrap.servers": self.target.address}
        return AttemptOrder(source=ends[0], target=ends[1], ranges=[one], policy=policy, hold=hold)

    def copy(self, *, start: int = 0, **policy_changes: Any) -> RangeResult:
        """All that the source has; ``start`` is only where a flow without any progress begins."""
        policy = replace(self._policy, **policy_changes)
        order = self._order(start, policy)
        (result,) = copy_ranges(
            order.ranges, source_options=order.source, target_options=order.target, policy=order.policy
        )
        return result

    def copied(self, *, start: int = 0) -> None:
        """The same, and it must go well."""
        result = self.copy(start=start)
        assert result.outcome is Outcome.COMPLETE, result.error

    def killed_at(self, point: str) -> None:
        """An attempt that is killed there."""
        with AttemptProcess(self._order(0, self._policy, (point, 1))) as attempt:
            assert attempt.await_held()

    def committed(self) -> int:
        """The progress as the target has it, of either way; negative where there is none."""
        return max(map(self._committed_of, self._groups()))

    def _groups(self) -> tuple[str, str]:
        """What may hold the progress."""
        tp = mirror.client.TopicPartition(self.target_topic, 0)
        return group_of(self.flow, tp), lazy_group_of(self.flow, tp)

    def commits(self) -> int:
        """How many commits of the progress the target's log has."""
        options = {"bootstrap.servers": self.target.address, "group.id": "watch", "enable.partition.eof": True}
        consumer = Consumer({**options, "isolation.level": "read_uncommitted"})
        try:
            parts = range(self.target.partitions(_OFFSETS))
            consumer.assign([TopicPartition(_OFFSETS, part, 0) for part in parts])
            keys, ended, until_s = list[bytes](), 0, time.monotonic() + WITHIN_S
            while ended < len(parts):
                assert time.monotonic() < until_s, f"{ended} partitions of {_OFFSETS} were read"
                for message in consumer.consume(5000, timeout=0.2):
                    error = message.error()
                    assert error is None or error.code() == KafkaError._PARTITION_EOF, error
                    ended += error is not None
                    keys.append(message.key() or b"")
        finally:
            consumer.close()
        return sum(group.encode() in key for key in keys for group in self._groups())

    def _committed_of(self, group: str) -> int:
        consumer = Consumer({"bootstrap.servers": self.target.address, "group.id": group})
        try:
            (found,) = consumer.committed([TopicPartition(self.target_topic, 0)], WITHIN_S)
        finally:
            consumer.close()
        return int(found.offset)

    def found(self) -> list[bytes | None]:
        """What the target has."""
        return self.target.read(self.target_topic)

    # --- what happens to the target

    def delete_progress(self) -> None:
        """As retention does it: the groups have no offsets any more."""
        for group, deleted in self.target.admin.delete_consumer_groups(list(self._groups())).items():
            error = deleted.exception(WITHIN_S)
            assert error is None or error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND, (group, error)
        eventually(lambda: self.committed() < 0, what="the end of the progress")

    def make_notes(self) -> None:
        """The flow's own topics where they are missing, as each run of a flow begins."""
        for own in {topic_of(self.flow), offset_topic_of(self.flow)} - self.target.topics():
            self.target.create(own, cleanup_policy="compact")

    def erase_note(self) -> None:
        """By a tombstone."""
        key = json.dumps({"topic": self.target_topic, "partition": 0}, separators=(",", ":"))
        producer = self.target.producer()
        producer.produce(topic_of(self.flow), None, key, 0)
        assert producer.flush(WITHIN_S) == 0

    def delete_notes(self) -> None:
        """All of them, with their topic."""
        self.target.delete(topic_of(self.flow))
        eventually(lambda: topic_of(self.flow) not in self.target.topics(), what="the end of the notes")

    def await_emptied(self) -> None:
        """Until retention has taken all that was copied."""

        def empty() -> bool:
            consumer = Consumer({"bootstrap.servers": self.target.address, "group.id": "watch"})
            try:
                first, end = consumer.get_watermark_offsets(TopicPartition(self.target_topic, 0), timeout=WITHIN_S)
            finally:
                consumer.close()
            return bool(first == end)

        eventually(empty, within_s=WITHIN_S, what=f"{self.target_topic} without records")

    def aborted_write(self) -> None:
        """Somebody's transaction in the target topic that comes to nothing."""
        producer = self.target.producer(transactional_id=self.flow)
        producer.init_transactions(WITHIN_S)
        producer.begin_transaction()
        producer.produce(self.target_topic, b"aborted", partition=0)
        producer.flush(WITHIN_S)
        producer.abort_transaction(WITHIN_S)
