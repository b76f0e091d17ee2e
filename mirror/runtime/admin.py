"""The face of topics, configurations and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from mirror.cluster.admin_calls import (
    CommitGroupOffsets,
    CreatePartitions,
    CreateTopics,
    DescribeCluster,
    DescribeTopicConfigs,
    DescribeTopics,
    GroupOffsets,
    ListOffsets,
)
from mirror.cluster.calls import Call
from mirror.cluster.settings import ClusterSettings
from mirror.cluster.topics import (
    ClusterDescription,
    NewTopic,
    OffsetAndMetadata,
    OffsetResult,
    TopicDescription,
    TopicPartition,
)
from mirror.errors import ClientClosed
from mirror.runtime import arguments
from mirror.runtime.thread import acquire, release

T = TypeVar("T")

_ISOLATIONS: Final = ("read_committed", "read_uncommitted")


class Admin:
    """Calls about a cluster. Safe to use from several threads.

    Every method takes ``timeout_ms``, else ``default.api.timeout.ms`` holds, and raises KafkaTimeout when it has
    passed, AuthorizationFailed or another BrokerError where a broker refuses, UnsupportedVersion where it is too old,
    InvalidArgument before anything is asked where an argument cannot be sent. Partitions may be plain
    ``(topic, number)`` tuples.
    """

    def __init__(self, options: Mapping[str, object]) -> None:
        """``options`` are Kafka's dotted keys. Raises ConfigError."""
        self._thread = acquire(ClusterSettings.parse(options))
        self._closed = False

    def _timer(self, timeout_ms: int | None) -> tuple[int, int]:
        return self._thread.timer(arguments.timeout(timeout_ms))

    def _call(self, call: Call[T, Any]) -> T:
        if self._closed:
            msg = "this Admin is closed"
            raise ClientClosed(msg)
        return self._thread.call(None, call)

    def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterDescription:
        """The cluster's id, controller and brokers."""
        return self._call(DescribeCluster(*self._timer(timeout_ms)))

    def list_topics(self, *, timeout_ms: int | None = None) -> dict[str, TopicDescription]:
        """All topics that may be seen, by name, internal ones included."""
        return self._call(DescribeTopics(None, *self._timer(timeout_ms)))

    def describe_topics(self, names: Iterable[str], *, timeout_ms: int | None = None) -> dict[str, TopicDescription]:
        """The topics of these names; those that do not exist are absent."""
        return self._call(DescribeTopics(arguments.topics(names), *self._timer(timeout_ms)))

    def describe_topic_configs(
        self, names: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, dict[str, str]]:
        """What was set on each topic itself, as key -> value."""
        return self._call(DescribeTopicConfigs(arguments.topics(names), *self._timer(timeout_ms)))

    def create_topics(self, topics: Iterable[NewTopic], *, timeout_ms: int | None = None) -> None:
        """Create all of them; BrokerError with code 36 where one is there already."""
        self._call(CreateTopics(arguments.new_topics(topics), *self._timer(timeout_ms)))

    def create_partitions(self, totals: Mapping[str, int], *, timeout_ms: int | None = None) -> None:
        """Give topics more partitions, as topic -> new total."""
        self._call(CreatePartitions(arguments.partition_totals(totals), *self._timer(timeout_ms)))

    def list_offsets(
        self,
        times: Mapping[TopicPartition, int],
        *,
        isolation: str = "read_committed",
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetResult]:
        """Offsets at EARLIEST (-2), LATEST (-1; the last stable offset at read_committed) or a time in ms."""
        committed = arguments.choice("isolation", isolation, _ISOLATIONS) == "read_committed"
        wanted = arguments.times_or_ends(times)
        deadline_ms, timeout = self._timer(timeout_ms)
        return self._call(ListOffsets(wanted, read_committed=committed, deadline_ms=deadline_ms, timeout_ms=timeout))

    def group_offsets(
        self, group: str, tps: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What ``group`` has committed for ``tps``; absent where nothing. Waits out pending transactions (KIP-447)."""
        name = arguments.text("a group id", group)
        return self._call(GroupOffsets(name, arguments.partitions(tps), *self._timer(timeout_ms)))

    def commit_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int | None = None
    ) -> None:
        """Commit offsets for a group without members."""
        name = arguments.text("a group id", group)
        self._call(CommitGroupOffsets(name, arguments.offsets(offsets), *self._timer(timeout_ms)))

    def close(self) -> None:
        """Let go of the network thread; safe to call again."""
        if not self._closed:
            self._closed = True
            release(self._thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
