"""The state of one topic by the responses of Metadata. No I/O."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from mirror.wire.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mirror.wire.messages.metadata import MetadataTopic

_MAX_STALE_EPOCHS: Final = 10
"""Responses in a row with a lower leader epoch, after which that is accepted: no broker lags for so long."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a partition, and its epoch; -1 where brokers before Apache Kafka 2.4 do not report it reliably."""

    node: int
    epoch: int


@dataclass(slots=True)
class TopicState:
    """The state of one topic by the last response that had it."""

    topic_id: uuid.UUID | None = None
    leaders: dict[int, Leader] = field(default_factory=dict)
    error: int = 0
    """The error code of the topic; 3: it does not exist."""
    partitions: int = 0
    stale_epochs: dict[int, int] = field(default_factory=dict)
    """By partition, responses in a row with a lower leader epoch than the known one."""
    record_epochs: dict[int, tuple[int, uuid.UUID | None]] = field(default_factory=dict)
    """By partition, the leader epoch of a record that was read, with the id of its topic."""
    requested: int = 0
    """The number of the last request for it."""
    answered: int = 0
    """The number of the last request for it that has a response."""
    wanted: bool = True
    """A call has wanted it since the last request for it."""
    wanted_before: bool = False
    """A call had wanted it between that request and the one before."""

    def min_epoch(self, partition: int) -> int:
        """Return the lowest leader epoch of ``partition`` that a broker which does not lag can report."""
        known = self.leaders.get(partition)
        epoch, topic_id = self.record_epochs.get(partition, (-1, None))
        if None not in {topic_id, self.topic_id} and topic_id != self.topic_id:
            epoch = -1
        return max(epoch, -1 if known is None else known.epoch)

    def update(self, topic: MetadataTopic, brokers: Collection[int]) -> bool:
        """Update it by a response, beside which these ``brokers`` are known; return False if that was incomplete.

        A topic with an error is, and one with a partition without a leader that may be one.
        """
        self.error = topic.error_code
        if topic.error_code:
            if topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                self.leaders.clear()
            return False
        if topic.topic_id is not None and topic.topic_id != self.topic_id:
            # Another topic with the same name (KIP-516): the epochs of the old one do not apply to it.
            self.leaders.clear()
            self.topic_id = topic.topic_id
        self.partitions = len(topic.partitions)
        complete = True
        for part in topic.partitions:
            if 0 <= part.leader_epoch < self.min_epoch(part.partition_index):
                if not self._accept_lower_epoch(part.partition_index):
                    complete = complete and part.partition_index in self.leaders
                    continue
                self.record_epochs.pop(part.partition_index, None)
            self.stale_epochs.pop(part.partition_index, None)
            if part.leader_id in brokers:
                self.leaders[part.partition_index] = Leader(part.leader_id, part.leader_epoch)
            else:
                self.leaders.pop(part.partition_index, None)
                complete = False
        return complete

    # Invariant: A leader epoch that is too high is not believed for ever: ten lower ones in a row replace it.
    # Test: tests/cluster/test_metadata.py::test_an_epoch_that_no_other_broker_reports_is_not_believed_for_ever
    def _accept_lower_epoch(self, partition: int) -> bool:
        """Whether to accept a lower epoch: a known one that is wrong would be kept for ever otherwise."""
        self.stale_epochs[partition] = self.stale_epochs.get(partition, 0) + 1
        return self.stale_epochs[partition] >= _MAX_STALE_EPOCHS

    def observed(self) -> tuple[uuid.UUID | None, int, int, dict[int, Leader]]:
        """Return what others read of it, to be compared."""
        return self.topic_id, self.partitions, self.error, dict(self.leaders)
