"""A source and a target in memory, and the search between their topics."""

from __future__ import annotations

from typing import Any

import pytest

from mirror.client import TopicPartition
from mirror.errors import FlowError
from mirror.producer.batch.queue import ProducerId
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.partition.search.position_search import LogPositionSearch
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.position import Appenders, FoundPosition, PositionQuery, PositionSearch
from mirror.relay.progress.target_log import TargetMark
from mirror.wire.records import TRANSACTIONAL
from tests.relay.fake_pair import FakePair
from tests.relay.searching import find

OWN, OTHER, FOREIGN = 7, 8, 9
FENCE = ProducerId(OWN, 3)
NO_SUCH_ID = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"


class Site:
    """A :class:`FakePair`, and the search between its topics."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, partitions: int = 1) -> None:
        self.pair = FakePair(monkeypatch, partitions=partitions)
        self.search = LogPositionSearch(
            {"bootstrap.servers": self.pair.source.bootstrap},
            {"bootstrap.servers": self.pair.target.bootstrap},
            CopyPolicy(),
        )

    def append(self, *values: bytes, producer_id: int = OWN, partition: int = 0, transactional: bool = False) -> None:
        attributes = TRANSACTIONAL if transactional else 0
        self.pair.log(partition).append_values(*values, producer_id=producer_id, attributes=attributes)

    def fence(self, partition: int = 0) -> int:
        """Write the marker; the offset after it."""
        return self.pair.log(partition).end_transaction(OWN, commit=True, epoch=FENCE.epoch) + 1

    def query(self, *, offset: int = 0, mark: int = 0, partition: int = 0, **progress: Any) -> PositionQuery:
        fields = {"leader_epoch": None, "source_cluster_id": "paris", "topic_id": "", "generation": 4, **progress}
        return PositionQuery(
            source=TopicPartition("t", partition),
            target=TopicPartition("paris.t", partition),
            progress=Progress(offset=offset, **{"target": TargetMark(topic_id="", end=mark), **fields}),
            appenders=Appenders(frozenset({OTHER}), ended=False),
            fence=FENCE,
        )

    def find(self, query: PositionQuery | None = None, timeout_ms: int = 20_000, **fields: Any) -> FoundPosition:
        search: PositionSearch[Any] = self.search
        return find(search, query or self.query(**fields), timeout_ms)

    def unproved(self, query: PositionQuery | None = None, **fields: Any) -> str:
        with pytest.raises(FlowError, match=r"^position-unproved: how far t-0 was copied into paris\.t-0 ") as raised:
            self.find(query, **fields)
        return str(raised.value)
