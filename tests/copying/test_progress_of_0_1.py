"""A flow whose progress version 0.1 has written resumes there: nothing is lost, and nothing is copied twice."""

from __future__ import annotations

import json
import time
import zlib
from typing import Any, Final

import pytest

from mirror.client import OffsetAndMetadata, Producer, TopicPartition
from mirror.wire.records import Batch
from tests.copying.pair import TwoClusters
from tests.copying.writers import Made, batch_of, write_batches

pytestmark = pytest.mark.brokers

COPIED, PENDING, LATER = 7, 5, 9
"""Records that 0.1 has committed, that it has left in an open transaction, and that it has not read."""

_WAYS: Final[dict[str, dict[str, Any]]] = {
    "auto": {"exactly_once_by": "auto"},
    "sequences": {"exactly_once_by": "sequences"},
    "transactions": {"exactly_once_by": "transactions"},
    "at least once": {"exactly_once": False},
}


class CopyOf01:
    """Copies as 0.1 did: a transaction with the batches and, in the same transaction, the progress."""

    def __init__(self, pair: TwoClusters, topic: str, topic_id: str) -> None:
        self._pair, self._topic_id = pair, topic_id
        self._tp = TopicPartition(topic, 0)
        self._group = f"mirror.{pair.flow}.{zlib.crc32(f'{topic}-0'.encode()) % 16}"
        name = f"mirror.{pair.flow}.{topic}.0"
        self.producer = Producer({"bootstrap.servers": pair.target.address, "transactional.id": name})
        self.producer.init_transactions()

    def write(self, batch: Batch, offset: int) -> None:
        """Write ``batch``, and the progress behind it at the source's ``offset``, into the open transaction."""
        metadata = {"v": 1, "cluster": self._pair.cluster_id, "topic": self._topic_id, "time": int(time.time() * 1000)}
        text = json.dumps(metadata, separators=(",", ":"))
        self.producer.send_batch(self._tp, batch).result(timeout=30)
        offsets = {self._tp: OffsetAndMetadata(offset, 0, text)}
        self.producer.send_offsets_to_transaction(offsets, self._group)


def _records(first: int, count: int) -> list[Made]:
    now = int(time.time() * 1000)  # old records would go in transactions, whatever the flow says
    return [Made(b"k%d" % number, b"v%d" % number, (), now + number) for number in range(first, first + count)]


_CASES: Final = [(way, killed) for way in _WAYS for killed in (False, True) if way != "at least once" or not killed]


@pytest.mark.parametrize(("way", "killed"), _CASES, ids=[f"{way}{', killed' * killed}" for way, killed in _CASES])
def test_flow_resumes_where_0_1_has_stopped(pair: TwoClusters, way: str, killed: bool) -> None:
    """A killed one has left a transaction open, with records and progress that must not count."""
    topic = pair.topics()
    parts = [_records(0, COPIED), _records(COPIED, PENDING), _records(COPIED + PENDING, LATER)]
    write_batches(pair.source.address, topic, [batch_of(part) for part in parts])
    before = CopyOf01(pair, topic, pair.ranges(topic)[0].topic_id)
    before.producer.begin_transaction()
    before.write(batch_of(parts[0]), COPIED)
    before.producer.commit_transaction()
    if killed:
        before.producer.begin_transaction()
        before.write(batch_of(parts[1]), COPIED + PENDING)
    (result,) = pair.complete(topic, **_WAYS[way])
    assert result.records == PENDING + LATER
    pair.target.await_stable(topic)
    pair.equal(topic)
    before.producer.close()
    assert pair.complete(topic, **_WAYS[way])[0].records == 0
    pair.equal(topic)
