"""Lends the consumers of one cluster to the searches that read it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from mirror.client import Consumer
from mirror.cluster.settings import ClusterSettings
from mirror.errors import KafkaTimeout

_FETCH_BYTES: Final = 1024 * 1024
_FETCH_WAIT_MS: Final = 5
"""A consumer that has read everything fetches again, and the next search with it waits for that response: with the
usual 500 ms, 300 searches took 38 s."""


class ConsumerPool:
    """The consumers of one cluster, which are lent to one search at a time."""

    def __init__(self, options: Mapping[str, object], isolation: str) -> None:
        """Of the ``options`` (dotted keys), those of the cluster are used. Raises ConfigError."""
        cluster_keys = ClusterSettings.keys()
        self._options: Final = {
            **{key: value for key, value in options.items() if key in cluster_keys},
            "auto.offset.reset": "none",
            "isolation.level": isolation,
            "fetch.max.bytes": _FETCH_BYTES,
            "max.partition.fetch.bytes": _FETCH_BYTES,
            "fetch.max.wait.ms": _FETCH_WAIT_MS,
        }
        ClusterSettings.parse({key: value for key, value in options.items() if key in cluster_keys})
        self._lock: Final = threading.Lock()
        self._idle: Final = list[Consumer]()
        self.closed = False

    @contextmanager
    def lend(self) -> Iterator[Consumer]:
        """Lend a consumer, which fetches nothing before and afterwards."""
        with self._lock:
            consumer = self._idle.pop() if self._idle else None
        if consumer is None:
            consumer = Consumer(self._options)
        usable = False
        try:
            yield consumer
            usable = True
        except KafkaTimeout:
            usable = True  # otherwise each slice would find the brokers first, and perhaps end before it has
            raise
        finally:
            if not (usable and self._take_back(consumer)):
                consumer.close(timeout_ms=0)

    def _take_back(self, consumer: Consumer) -> bool:
        consumer.assign([])
        with self._lock:
            if not self.closed:
                self._idle.append(consumer)
            return not self.closed

    def close(self) -> None:
        """Close those that are not in use, and the others when they are returned."""
        with self._lock:
            self.closed = True
            idle, self._idle[:] = list(self._idle), []
        for consumer in idle:
            consumer.close(timeout_ms=0)
