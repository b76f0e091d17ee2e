"""Calls about the cluster and its brokers: who they are, what is on their disks, this client's telemetry id."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Final

from mirror.cluster.calls import Call, ClusterView, Failures, check
from mirror.cluster.keyed_call import BrokersCall
from mirror.cluster.types import Broker, ClusterDescription, LogDir, ReplicaLog, TopicPartition
from mirror.errors import KafkaError
from mirror.wire.api import Api
from mirror.wire.error_codes import broker_error
from mirror.wire.messages.admin import DescribedLogDir, DescribeLogDirsRequest, DescribeLogDirsResponse
from mirror.wire.messages.metadata import MetadataRequest, MetadataResponse
from mirror.wire.messages.telemetry import GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse

_ALL: Final = "*"
_CLUSTER_AUTHORIZATION_FAILED: Final = 31


class DescribeCluster(Call[ClusterDescription, str]):
    """The cluster's identity and brokers."""

    api = Api.METADATA

    def __init__(self, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing the cluster", (_ALL,), deadline_ms, timeout_ms)
        self._found: ClusterDescription | None = None

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> MetadataRequest:
        """No topics: only the brokers are wanted."""
        del keys, view, timeout_ms
        return MetadataRequest(())

    def accept(self, keys: Collection[str], response: MetadataResponse) -> Failures:
        """Always an answer."""
        del keys
        brokers = tuple(Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers)
        self._found = ClusterDescription(response.cluster_id or "", response.controller_id, brokers)
        return {}

    def result(self) -> ClusterDescription:
        """What was told."""
        assert self._found is not None  # noqa: S101 - result() follows accept()
        return self._found


class DescribeLogDirs(BrokersCall[dict[str, LogDir]]):
    """The log directories of brokers, by path; one that is offline has an error and no logs."""

    api = Api.DESCRIBE_LOG_DIRS
    needs = "Describe"

    def __init__(self, nodes: Collection[int], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing log directories", nodes, deadline_ms, timeout_ms)

    def about(self, key: int) -> str:
        """For errors."""
        return f"describing the log directories of broker {key}"

    def body(self, keys: Collection[int], view: ClusterView, timeout_ms: int) -> DescribeLogDirsRequest:
        """All topics."""
        del keys, view, timeout_ms
        return DescribeLogDirsRequest()

    def accept(self, keys: Collection[int], response: DescribeLogDirsResponse) -> Failures:
        """One broker's."""
        code = response.error_code
        if not code and not response.results:
            # Every broker has a directory. Before version 3 this is how one says that asking is not allowed.
            code = _CLUSTER_AUTHORIZATION_FAILED
        found = {told.log_dir: _log_dir(told) for told in response.results}
        for node in keys:
            self.take(node, code, found)
        return self.open(keys)


def _log_dir(told: DescribedLogDir) -> LogDir:
    logs = {
        TopicPartition(topic.name, part.partition_index): ReplicaLog(
            part.partition_size, part.offset_lag, part.is_future_key
        )
        for topic in told.topics
        for part in topic.partitions
    }
    error: KafkaError | None = None
    if told.error_code:
        error = broker_error(told.error_code, f"log directory {told.log_dir}")
    total = told.total_bytes if told.total_bytes >= 0 else None
    usable = told.usable_bytes if told.usable_bytes >= 0 else None
    return LogDir(error, total, usable, logs)


class ClientInstanceId(Call[uuid.UUID, str]):
    """The id under which a broker keeps this client's telemetry (KIP-714); UnsupportedVersion where it keeps none."""

    api = Api.GET_TELEMETRY_SUBSCRIPTIONS

    def __init__(self, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("getting the client instance id", (_ALL,), deadline_ms, timeout_ms)
        self._found: uuid.UUID | None = None

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> GetTelemetrySubscriptionsRequest:
        """A null id asks for a new one."""
        del keys, view, timeout_ms
        return GetTelemetrySubscriptionsRequest()

    def accept(self, keys: Collection[str], response: GetTelemetrySubscriptionsResponse) -> Failures:
        """One id."""
        error = check(response.error_code, self.what)
        if error is not None:
            return dict.fromkeys(keys, error)
        self._found = response.client_instance_id
        return {}

    def result(self) -> uuid.UUID:
        """The id."""
        assert self._found is not None  # noqa: S101 - result() follows accept()
        return self._found
