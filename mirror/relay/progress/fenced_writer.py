"""Writes records of one of a flow's topics under a producer identity that fences the writers of earlier runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Final

from mirror.client import Producer
from mirror.errors import KafkaError
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue

_COMPRESSION: Final = "zstd"


class FencedWriter:
    """Writes records in transactions. Its calls wait for the target; use it in one thread.

    Once another writer has begun, nothing of this one is stored any more: the calls raise Fenced, until :meth:`close`,
    after which this one fences the other.
    """

    def __init__(self, topic: FlowTopic, transactional_id: str, timeout_ms: int) -> None:
        """``timeout_ms`` limits each call."""
        self._topic: Final = topic
        self._timeout_ms: Final = timeout_ms
        self._id: Final = transactional_id
        self._producer: Producer | None = None

    @property
    def has_begun(self) -> bool:
        """Whether this writer has fenced earlier ones, and has not failed since."""
        return self._producer is not None

    def begin(self) -> None:
        """Fence earlier writers, if this one has not yet: they store nothing afterwards. Raises KafkaError."""
        if self._producer is not None:
            return
        producer = Producer(
            {
                **self._topic.options,
                "transactional.id": self._id,
                "compression.type": _COMPRESSION,
                "max.block.ms": self._timeout_ms,
            }
        )
        try:
            producer.init_transactions(self._timeout_ms)
        except KafkaError:
            producer.close(timeout_ms=0)
            raise
        self._producer = producer

    def write(self, records: Iterable[KeyValue]) -> list[int]:
        """Store these records, all or none, and return at which offsets they are. Raises KafkaError, Fenced."""
        self.begin()
        producer = self._producer
        assert producer is not None  # noqa: S101 - of begin()
        try:
            producer.begin_transaction()
            sent = [producer.send(*self._topic.tp, key=record.key, value=record.value) for record in records]
            producer.commit_transaction(self._timeout_ms)
            return [future.result().offset for future in sent]
        except KafkaError:
            self.close()
            raise

    def close(self) -> None:
        """Release the producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(KafkaError):
                producer.close(timeout_ms=0)
