"""Writes records of a flow's topics under a producer identity that fences the writers of earlier runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Final, NoReturn

from mirror.client import Producer
from mirror.errors import KafkaError, KafkaTimeout, NeedsAbort
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue

_COMPRESSION: Final = "zstd"
_BATCH_BYTES: Final = 256 * 1024
_LINGER_MS: Final = 1_000
"""The records of a call are one batch, if they fit: the commit ends the wait. A round of 1,000 groups made twenty."""


def transactional_id(flow: str) -> str:
    """Return the id under which a flow stores what it changes. No partition has it: theirs end with a number."""
    return f"mirror.{flow}.changes"


def groups_transactional_id(flow: str) -> str:
    """Return the id under which a flow stores positions of groups: `mirror apply` fences none."""
    return f"mirror.{flow}.groups"


def aside_transactional_id(flow: str) -> str:
    """Return the id under which records of a flow's aside topic are copied again."""
    return f"mirror.{flow}.aside"


def switch_transactional_id(switch: str) -> str:
    """Return the id under which operators of a switch store its record, on both clusters."""
    return f"mirror.{switch}.switch"


class FencedWriter:
    """Writes records in transactions. Its calls wait for the target; use it in one thread.

    Once another writer has begun, nothing of this one is stored: :meth:`write` raises Fenced. The next :meth:`begin`
    or :meth:`write` fences the other one, as after any error.
    """

    def __init__(
        self, topic: FlowTopic, transactional_id: str, timeout_ms: int, *, check: Callable[[], object] = bool
    ) -> None:
        """``timeout_ms`` limits each call. ``check`` is called once others are fenced; if it raises, nothing is stored.

        It is called again with the next attempt to begin.
        """
        self._topic: Final = topic
        self._timeout_ms: Final = timeout_ms
        self._id: Final = transactional_id
        self._check: Final = check
        self._producer: Producer | None = None

    @property
    def has_begun(self) -> bool:
        """Whether this writer has fenced earlier ones, and has not failed since."""
        return self._producer is not None

    def begin(self) -> bool:
        """Fence other writers, if this one has not since it failed: they store nothing afterwards.

        Return whether it has fenced them now. Raises KafkaError, and what the check raises.
        """
        if self._producer is not None:
            return False
        producer = Producer(self.options)
        try:
            producer.init_transactions(self._timeout_ms)
        except KafkaError as error:
            producer.close(timeout_ms=0)
            self._fail(f"fencing earlier users of {self._id}", error)
        try:
            self._check()
        except BaseException:
            producer.close(timeout_ms=0)
            raise
        self._producer = producer
        return True

    @property
    def options(self) -> dict[str, object]:
        """The dotted keys of the producer, with the shortest timeouts: a call that ends late closes it.

        With the defaults, brokers would have to allow transactions of 150 s (``transaction.max.timeout.ms``).
        """
        request_ms = min(self._topic.settings.request_timeout_ms, self._timeout_ms)
        delivery_ms = request_ms + self._topic.settings.retry_backoff_ms + _LINGER_MS
        return {
            **self._topic.options,
            "transactional.id": self._id,
            "compression.type": _COMPRESSION,
            "batch.size": _BATCH_BYTES,
            "linger.ms": _LINGER_MS,
            "max.block.ms": self._timeout_ms,
            "request.timeout.ms": request_ms,
            "delivery.timeout.ms": delivery_ms,
            "transaction.timeout.ms": delivery_ms + request_ms,
        }

    def write(self, records: Iterable[KeyValue]) -> list[int]:
        """Store these records, all or none, and return their offsets. Raises KafkaError, Fenced."""
        self.begin()
        producer = self._producer
        assert producer is not None  # noqa: S101 - of begin()
        try:
            producer.begin_transaction()
            sent = [producer.send(*self._topic.tp, key=record.key, value=record.value) for record in records]
            producer.commit_transaction(self._timeout_ms)
            return [future.result().offset for future in sent]
        except KafkaError as error:
            self.close()
            self._fail(f"storing records in {self._topic.tp.topic}", error)

    def _fail(self, doing: str, error: KafkaError) -> NoReturn:
        """Raise ``error`` without the advice for callers of the producer, which is closed now."""
        why = error.__cause__
        if isinstance(error, NeedsAbort) and isinstance(why, KafkaError):
            raise why
        if type(error) is KafkaTimeout:
            late = f"{doing} did not succeed within {self._timeout_ms} ms"
            raise KafkaTimeout(late if why is None else f"{late}: {why}") from why
        raise error

    def close(self) -> None:
        """Release the producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(KafkaError):
                producer.close(timeout_ms=0)
