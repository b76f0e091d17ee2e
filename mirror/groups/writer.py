"""Stores intents in the flow's group topic, under a producer identity that fences the writers of earlier runs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final

from mirror.client import Producer
from mirror.errors import KafkaError
from mirror.groups.decision import Intent
from mirror.groups.intents import GroupTopicKey, Offsets, ResumeKey, encode_intents, encode_key, encode_resumed
from mirror.relay.progress.flow_topic import FlowTopic

_COMPRESSION: Final = "zstd"


def transactional_id(flow: str) -> str:
    """Return the id under which a flow's intents are stored. No partition has it: theirs end with a number."""
    return f"mirror.{flow}.groups"


class IntentWriter:
    """Writes intents in transactions. Its calls wait for the target; use it in one thread.

    Once another writer has begun, no intent of this one is stored any more: the calls raise Fenced, until
    :meth:`close`, after which this one fences the other.
    """

    def __init__(self, topic: FlowTopic, flow: str, timeout_ms: int) -> None:
        """``timeout_ms`` limits each call."""
        self._topic: Final = topic
        self._timeout_ms: Final = timeout_ms
        self._id: Final = transactional_id(flow)
        self._producer: Producer | None = None

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

    def write(
        self,
        intents: Mapping[GroupTopicKey, Mapping[int, Intent]],
        resumed: Mapping[str, Mapping[str, Offsets]],
    ) -> dict[GroupTopicKey | ResumeKey, int]:
        """Store the intents of each key, and where each group is resumed, all or none. Raises KafkaError, Fenced.

        The record of a key or group is deleted if there are none. Returns at which offsets the records are.
        """
        self.begin()
        producer = self._producer
        assert producer is not None  # noqa: S101 - of begin()
        records: dict[GroupTopicKey | ResumeKey, bytes | None] = {
            **{key: encode_intents(of_topic) if of_topic else None for key, of_topic in intents.items()},
            **{ResumeKey(group): encode_resumed(of) if of else None for group, of in resumed.items()},
        }
        try:
            producer.begin_transaction()
            sent = {
                key: producer.send(*self._topic.tp, key=encode_key(key), value=value) for key, value in records.items()
            }
            producer.commit_transaction(self._timeout_ms)
            return {key: future.result().offset for key, future in sent.items()}
        except KafkaError:
            self.close()
            raise

    def close(self) -> None:
        """Release the producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(KafkaError):
                producer.close(timeout_ms=0)
