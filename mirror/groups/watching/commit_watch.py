"""Follows ``__consumer_offsets`` of a cluster: it says which groups have committed, and nothing of what."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from mirror.client import Admin, Consumer, OffsetAndMetadata, TopicPartition
from mirror.closing import Closing
from mirror.cluster.settings import ClusterSettings
from mirror.errors import KafkaError, MirrorError
from mirror.groups.watching.changes import Changes
from mirror.relay.progress.flow_topic import cluster_options
from mirror.timing import Clock

COMMITS_TOPIC: Final = "__consumer_offsets"
_FETCH_BYTES: Final = 1024 * 1024
_MOST_BYTES: Final = 4 * _FETCH_BYTES
"""Of what was fetched and is not read yet: a round may take minutes."""
_MOST_POLLS: Final = 64
_RETRY_MS: Final = 60_000
"""For so long it is not tried again after a refusal. It does not grow: permissions are granted at any time."""
_TIMEOUT_MS: Final = 5_000

_log: Final = logging.getLogger(__name__)


class CommitWatch(Closing):
    """Which groups have committed, as far as that may be read. Use it in one thread; nothing it cannot read is raised.

    The leader of a partition of the topic is the coordinator of its groups: while one does not answer, these can be
    asked as little as their changes be seen.
    """

    def __init__(self, source: Admin, options: Mapping[str, object], clock: Clock, wait_ms: int) -> None:
        """``options`` are dotted keys, of which those of the cluster are used.

        Brokers gather what is written for ``wait_ms``, so that many commits are one response. Raises ConfigError.
        """
        self._admin: Final = source
        self._clock: Final = clock
        own = cluster_options(options)
        longest_ms = ClusterSettings.parse(own).request_timeout_ms // 2
        self._consumer: Final = Consumer(
            {**own, "auto.offset.reset": "none", "isolation.level": "read_uncommitted"}
            | {"fetch.min.bytes": _FETCH_BYTES, "fetch.max.bytes": _MOST_BYTES}
            | {"fetch.max.wait.ms": min(wait_ms, longest_ms)}
        )
        self._changes: Final = Changes()
        self._retry_ms = clock.now()
        self.problem = "it was not tried yet"
        """Why it cannot be read; empty if it can."""

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    @property
    def is_open(self) -> bool:
        """Whether changes are seen."""
        return not self.problem

    def changed(self) -> frozenset[str] | None:
        """Return the groups that have changed since the last call; None: any may have."""
        if self.problem and self._clock.now() >= self._retry_ms:
            self._open()
        for _ in range(_MOST_POLLS if self.is_open else 0):
            fetches = self._consumer.poll(0)
            for fetched in fetches:
                if fetched.error is not None:
                    self._lose(fetched.error, self._clock.now())
                    break
                self._changes.read(fetched.tp.partition, fetched.batches)
            if not fetches or not self.is_open:
                break
        return self._changes.take()

    def _open(self) -> None:
        """Begin at the ends: what was committed before, a round of all groups brings that begins now."""
        try:
            found = self._admin.describe_topics([COMMITS_TOPIC], timeout_ms=_TIMEOUT_MS)
            if COMMITS_TOPIC not in found:
                raise KafkaError(f"there is no topic {COMMITS_TOPIC} yet")
            topic = found[COMMITS_TOPIC]
            tps = [TopicPartition(COMMITS_TOPIC, one.partition) for one in topic.partitions]
            ends = self._consumer.end_offsets(tps, _TIMEOUT_MS)
            self._consumer.assign(tps)
            for tp, end in ends.items():
                self._consumer.seek(tp, OffsetAndMetadata(end, topic_id=topic.topic_id))
        except MirrorError as error:
            self._lose(error, self._clock.now() + _RETRY_MS)
        else:
            self._changes.lose()
            self.problem = ""

    def _lose(self, error: MirrorError, retry_ms: int) -> None:
        """Read nothing until ``retry_ms``: the rounds ask for all groups."""
        self._consumer.assign([])
        self.problem, self._retry_ms = " ".join(str(error).split()), retry_ms
        _log.info("%s cannot be followed, so that each round asks for all groups: %s", COMMITS_TOPIC, self.problem)
