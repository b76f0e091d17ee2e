"""Calls about the cluster and its brokers: identity, permissions, log directories, this client's telemetry id."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Final

from mirror.cluster.acls import AclOperation, operations_of
from mirror.cluster.calls.keyed_call import BrokersCall
from mirror.cluster.calls.routed_calls import Call, ClusterView, Failures, check
from mirror.cluster.connection.negotiation import SOFTWARE_NAME
from mirror.cluster.types import Broker, ClientQuota, ClusterDescription, LogDir, ReplicaLog, TopicPartition
from mirror.errors import KafkaError
from mirror.version import VERSION
from mirror.wire.api import Api
from mirror.wire.error_codes import broker_error
from mirror.wire.messages.admin import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedLogDir,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from mirror.wire.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    MetadataRequest,
    MetadataResponse,
    QuorumPartition,
    QuorumTopic,
)
from mirror.wire.messages.session import ApiVersionsRequest, ApiVersionsResponse
from mirror.wire.messages.telemetry import GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse
from mirror.wire.versions import BrokerVersions

_ALL: Final = "*"
_METADATA_TOPIC: Final = "__cluster_metadata"
_CLUSTER_AUTHORIZATION_FAILED: Final = 31


class DescribeCluster(Call[ClusterDescription, str]):
    """Describe the cluster: its id, controller and brokers."""

    api = Api.METADATA

    def __init__(self, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing the cluster", (_ALL,), deadline_ms, timeout_ms)
        self._found: ClusterDescription | None = None

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> MetadataRequest:
        """Request the brokers only, without topics."""
        del keys, view, timeout_ms
        return MetadataRequest(())

    def accept(self, keys: Collection[str], response: MetadataResponse) -> Failures:
        """Keep the description."""
        del keys
        brokers = tuple(Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers)
        self._found = ClusterDescription(response.cluster_id or "", response.controller_id, brokers)
        return {}

    def result(self) -> ClusterDescription:
        """Return the answer."""
        assert self._found is not None  # noqa: S101 - result() follows accept()
        return self._found


class ClusterOperations(Call[frozenset[AclOperation] | None, str]):
    """Find out which operations on the cluster itself this client may perform."""

    api = Api.DESCRIBE_CLUSTER

    def __init__(self, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing the permissions on the cluster", (_ALL,), deadline_ms, timeout_ms)
        self._found: frozenset[AclOperation] | None = None

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> DescribeClusterRequest:
        """Request the operations; the brokers come with them."""
        del keys, view, timeout_ms
        return DescribeClusterRequest(include_cluster_authorized_operations=True)

    def accept(self, keys: Collection[str], response: DescribeClusterResponse) -> Failures:
        """Keep the operations."""
        error = check(response.error_code, self.what, response.error_message)
        if error is not None:
            return dict.fromkeys(keys, error)
        self._found = operations_of(response.cluster_authorized_operations)
        return {}

    def result(self) -> frozenset[AclOperation] | None:
        """Return the answer."""
        return self._found


class OperationsByMetadata(Call[frozenset[AclOperation] | None, str]):
    """Find out the same of brokers without DescribeCluster (KIP-430): before Apache Kafka 2.3 they do not say."""

    api = Api.METADATA
    max_version = 10

    def __init__(self, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing the permissions on the cluster", (_ALL,), deadline_ms, timeout_ms)
        self._found: frozenset[AclOperation] | None = None

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> MetadataRequest:
        """Request the operations; the brokers come with them."""
        del keys, view, timeout_ms
        return MetadataRequest((), include_cluster_authorized_operations=True)

    def accept(self, keys: Collection[str], response: MetadataResponse) -> Failures:
        """Keep the operations."""
        del keys
        self._found = operations_of(response.cluster_authorized_operations)
        return {}

    def result(self) -> frozenset[AclOperation] | None:
        """Return the answer."""
        return self._found


class ControllerTime(Call[int, str]):
    """Find out the time of the active controller's clock, in ms since 1970.

    It is the only clock of a cluster that a client can read without writing: of itself the leader of the quorum says
    "now" (KIP-836, from Apache Kafka 3.3). Clusters with ZooKeeper have no such call.
    """

    api = Api.DESCRIBE_QUORUM

    def __init__(self, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("reading the controller's clock", (_ALL,), deadline_ms, timeout_ms)
        self._found = -1

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> DescribeQuorumRequest:
        """Request the only partition."""
        del keys, view, timeout_ms
        return DescribeQuorumRequest((QuorumTopic(_METADATA_TOPIC, (QuorumPartition(0),)),))

    def accept(self, keys: Collection[str], response: DescribeQuorumResponse) -> Failures:
        """Keep the time."""
        found = next((part for topic in response.topics for part in topic.partitions), None)
        code = response.error_code or (0 if found is None else found.error_code)
        error = check(code, self.what, needs="Describe")
        if error is None and found is not None:
            times = {one.replica_id: one.last_caught_up_timestamp for one in found.current_voters}
            self._found = times.get(found.leader_id, -1)
        if error is None and self._found < 0:
            error = KafkaError(f"{self.what}: the broker's answer leaves it out")
        return {} if error is None else dict.fromkeys(keys, error)

    def result(self) -> int:
        """Return the time."""
        return self._found


class ClientQuotas(Call[tuple[ClientQuota, ...], str]):
    """Describe the quotas of all users and client ids (KIP-546, from Apache Kafka 2.6)."""

    api = Api.DESCRIBE_CLIENT_QUOTAS

    def __init__(self, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing quotas", (_ALL,), deadline_ms, timeout_ms)
        self._found: tuple[ClientQuota, ...] = ()

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> DescribeClientQuotasRequest:
        """Request all: which of them apply depends on each other."""
        del keys, view, timeout_ms
        return DescribeClientQuotasRequest((), strict=False)

    def accept(self, keys: Collection[str], response: DescribeClientQuotasResponse) -> Failures:
        """Keep the quotas."""
        error = check(response.error_code, self.what, response.error_message, needs="DescribeConfigs")
        if error is not None:
            return dict.fromkeys(keys, error)
        self._found = tuple(
            ClientQuota(
                {part.entity_type: part.entity_name for part in entry.entity},
                {one.key: one.value for one in entry.values},
            )
            for entry in response.entries or ()
        )
        return {}

    def result(self) -> tuple[ClientQuota, ...]:
        """Return the answer."""
        return self._found


class DescribeVersions(BrokersCall[BrokerVersions]):
    """Describe which versions of which APIs brokers speak (KIP-35)."""

    api = Api.API_VERSIONS

    def __init__(self, nodes: Collection[int], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing versions", nodes, deadline_ms, timeout_ms)

    def describe(self, key: int) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"describing the versions of broker {key}"

    def body(self, keys: Collection[int], view: ClusterView, timeout_ms: int) -> ApiVersionsRequest:
        """Request what was negotiated with the connection, too."""
        del keys, view, timeout_ms
        return ApiVersionsRequest(SOFTWARE_NAME, VERSION)

    def accept(self, keys: Collection[int], response: ApiVersionsResponse) -> Failures:
        """Set the result of one broker."""
        for node in keys:
            self.set_result(node, response.error_code, BrokerVersions.of(response))
        return self.unresolved(keys)


class DescribeLogDirs(BrokersCall[dict[str, LogDir]]):
    """Describe the log directories of brokers, by path; one that is offline has an error and no logs."""

    api = Api.DESCRIBE_LOG_DIRS
    needs = "Describe"

    def __init__(self, nodes: Collection[int], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("describing log directories", nodes, deadline_ms, timeout_ms)

    def describe(self, key: int) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"describing the log directories of broker {key}"

    def body(self, keys: Collection[int], view: ClusterView, timeout_ms: int) -> DescribeLogDirsRequest:
        """Request all topics."""
        del keys, view, timeout_ms
        return DescribeLogDirsRequest()

    def accept(self, keys: Collection[int], response: DescribeLogDirsResponse) -> Failures:
        """Set the result of one broker."""
        code = response.error_code
        if not code and not response.results:
            # Every broker has a directory: before version 3 an empty answer means that the call is not authorized.
            code = _CLUSTER_AUTHORIZATION_FAILED
        found = {entry.log_dir: _log_dir(entry) for entry in response.results}
        for node in keys:
            self.set_result(node, code, found)
        return self.unresolved(keys)


def _log_dir(entry: DescribedLogDir) -> LogDir:
    logs = {
        TopicPartition(topic.name, part.partition_index): ReplicaLog(
            part.partition_size, part.offset_lag, part.is_future_key
        )
        for topic in entry.topics
        for part in topic.partitions
    }
    error: KafkaError | None = None
    if entry.error_code:
        error = broker_error(entry.error_code, f"log directory {entry.log_dir}")
    total = entry.total_bytes if entry.total_bytes >= 0 else None
    usable = entry.usable_bytes if entry.usable_bytes >= 0 else None
    return LogDir(error, total, usable, logs)


class ClientInstanceId(Call[uuid.UUID, str]):
    """Get the id of this client's telemetry at a broker (KIP-714). Raises UnsupportedVersion if it has none."""

    api = Api.GET_TELEMETRY_SUBSCRIPTIONS

    def __init__(self, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("getting the client instance id", (_ALL,), deadline_ms, timeout_ms)
        self._found: uuid.UUID | None = None

    def request(self, keys: Collection[str], view: ClusterView, timeout_ms: int) -> GetTelemetrySubscriptionsRequest:
        """Request a new id, by a null one."""
        del keys, view, timeout_ms
        return GetTelemetrySubscriptionsRequest()

    def accept(self, keys: Collection[str], response: GetTelemetrySubscriptionsResponse) -> Failures:
        """Keep the id."""
        error = check(response.error_code, self.what)
        if error is not None:
            return dict.fromkeys(keys, error)
        self._found = response.client_instance_id
        return {}

    def result(self) -> uuid.UUID:
        """Return the id."""
        assert self._found is not None  # noqa: S101 - result() follows accept()
        return self._found
