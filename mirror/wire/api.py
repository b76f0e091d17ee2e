"""The APIs and versions that this client supports."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mirror.wire.messages import acls, admin, epochs, fetch, groups, metadata, produce, session, telemetry, transactions
from mirror.wire.messages.base import Message


@dataclass(frozen=True, slots=True)
class ApiSpec:
    """One API: its key, the lowest and the highest version of this client, and the two message classes.

    The lowest version is the highest of Apache Kafka 2.1 where a source needs the API, as far back as clients of 4.0 go
    (KIP-896). What only a target needs begins with the versions of later releases. The highest version of OffsetCommit
    and OffsetFetch is the last that identifies topics by name, because a group's offsets are stored by name. Only
    brokers send AddPartitionsToTxn 4 and above (KIP-890).
    """

    key: int
    low: int
    high: int
    request: type[Message]
    response: type[Message]
    since: str = "2.1"
    """The first release of Apache Kafka whose brokers offer ``low``."""


class Api(enum.Enum):
    """The APIs by name.

    ``spec`` is the value, and ``label`` the name as Kafka spells it (``ListOffsets``). They are plain attributes:
    every request reads them, and ``value`` and ``name`` of an Enum are Python calls.
    """

    __hash__ = object.__hash__

    def __init__(self, spec: ApiSpec) -> None:
        self.spec = spec
        self.label = "".join(part.capitalize() for part in self.name.split("_"))

    PRODUCE = ApiSpec(0, 7, 13, produce.ProduceRequest, produce.ProduceResponse)
    FETCH = ApiSpec(1, 10, 18, fetch.FetchRequest, fetch.FetchResponse)
    LIST_OFFSETS = ApiSpec(2, 4, 10, fetch.ListOffsetsRequest, fetch.ListOffsetsResponse)
    METADATA = ApiSpec(3, 7, 13, metadata.MetadataRequest, metadata.MetadataResponse)
    OFFSET_COMMIT = ApiSpec(8, 6, 9, groups.OffsetCommitRequest, groups.OffsetCommitResponse)
    OFFSET_FETCH = ApiSpec(9, 5, 9, groups.OffsetFetchRequest, groups.OffsetFetchResponse)
    FIND_COORDINATOR = ApiSpec(10, 2, 6, metadata.FindCoordinatorRequest, metadata.FindCoordinatorResponse)
    DESCRIBE_GROUPS = ApiSpec(15, 2, 6, groups.DescribeGroupsRequest, groups.DescribeGroupsResponse)
    LIST_GROUPS = ApiSpec(16, 2, 5, groups.ListGroupsRequest, groups.ListGroupsResponse)
    SASL_HANDSHAKE = ApiSpec(17, 1, 1, session.SaslHandshakeRequest, session.SaslHandshakeResponse)
    API_VERSIONS = ApiSpec(18, 0, 4, session.ApiVersionsRequest, session.ApiVersionsResponse)
    CREATE_TOPICS = ApiSpec(19, 3, 7, admin.CreateTopicsRequest, admin.CreateTopicsResponse)
    DELETE_TOPICS = ApiSpec(20, 6, 6, admin.DeleteTopicsRequest, admin.DeleteTopicsResponse, "2.8")
    DELETE_RECORDS = ApiSpec(21, 1, 2, admin.DeleteRecordsRequest, admin.DeleteRecordsResponse)
    INIT_PRODUCER_ID = ApiSpec(22, 1, 5, produce.InitProducerIdRequest, produce.InitProducerIdResponse)
    OFFSET_FOR_LEADER_EPOCH = ApiSpec(23, 2, 4, epochs.OffsetForLeaderEpochRequest, epochs.OffsetForLeaderEpochResponse)
    ADD_PARTITIONS_TO_TXN = ApiSpec(
        24, 3, 3, transactions.AddPartitionsToTxnRequest, transactions.AddPartitionsToTxnResponse, "2.8"
    )
    ADD_OFFSETS_TO_TXN = ApiSpec(
        25, 3, 4, transactions.AddOffsetsToTxnRequest, transactions.AddOffsetsToTxnResponse, "2.8"
    )
    END_TXN = ApiSpec(26, 3, 5, transactions.EndTxnRequest, transactions.EndTxnResponse, "2.8")
    TXN_OFFSET_COMMIT = ApiSpec(
        28, 3, 5, transactions.TxnOffsetCommitRequest, transactions.TxnOffsetCommitResponse, "2.5"
    )
    DESCRIBE_ACLS = ApiSpec(29, 1, 3, acls.DescribeAclsRequest, acls.DescribeAclsResponse)
    CREATE_ACLS = ApiSpec(30, 1, 3, acls.CreateAclsRequest, acls.CreateAclsResponse)
    DELETE_ACLS = ApiSpec(31, 1, 3, acls.DeleteAclsRequest, acls.DeleteAclsResponse)
    DESCRIBE_CONFIGS = ApiSpec(32, 2, 4, admin.DescribeConfigsRequest, admin.DescribeConfigsResponse)
    DESCRIBE_LOG_DIRS = ApiSpec(35, 1, 5, admin.DescribeLogDirsRequest, admin.DescribeLogDirsResponse)
    SASL_AUTHENTICATE = ApiSpec(36, 0, 2, session.SaslAuthenticateRequest, session.SaslAuthenticateResponse)
    CREATE_PARTITIONS = ApiSpec(37, 1, 3, admin.CreatePartitionsRequest, admin.CreatePartitionsResponse)
    DELETE_GROUPS = ApiSpec(42, 1, 2, groups.DeleteGroupsRequest, groups.DeleteGroupsResponse)
    INCREMENTAL_ALTER_CONFIGS = ApiSpec(
        44, 1, 1, admin.IncrementalAlterConfigsRequest, admin.IncrementalAlterConfigsResponse, "2.4"
    )
    OFFSET_DELETE = ApiSpec(47, 0, 0, groups.OffsetDeleteRequest, groups.OffsetDeleteResponse, "2.4")
    DESCRIBE_CLIENT_QUOTAS = ApiSpec(
        48, 0, 1, admin.DescribeClientQuotasRequest, admin.DescribeClientQuotasResponse, "2.6"
    )
    DESCRIBE_QUORUM = ApiSpec(55, 1, 1, metadata.DescribeQuorumRequest, metadata.DescribeQuorumResponse, "3.3")
    DESCRIBE_CLUSTER = ApiSpec(60, 0, 2, metadata.DescribeClusterRequest, metadata.DescribeClusterResponse, "2.8")
    DESCRIBE_PRODUCERS = ApiSpec(
        61, 0, 0, transactions.DescribeProducersRequest, transactions.DescribeProducersResponse, "2.8"
    )
    DESCRIBE_TRANSACTIONS = ApiSpec(
        65, 0, 0, transactions.DescribeTransactionsRequest, transactions.DescribeTransactionsResponse, "3.0"
    )
    LIST_TRANSACTIONS = ApiSpec(
        66, 0, 0, transactions.ListTransactionsRequest, transactions.ListTransactionsResponse, "3.0"
    )
    CONSUMER_GROUP_DESCRIBE = ApiSpec(
        69, 0, 1, groups.ConsumerGroupDescribeRequest, groups.ConsumerGroupDescribeResponse, "3.7"
    )
    GET_TELEMETRY_SUBSCRIPTIONS = ApiSpec(
        71, 0, 0, telemetry.GetTelemetrySubscriptionsRequest, telemetry.GetTelemetrySubscriptionsResponse, "3.7"
    )

    def most_response_bytes(self, body: Message) -> int:
        """Return the largest size, in bytes, of a response to the request ``body``."""
        asked = body.max_bytes if isinstance(body, fetch.FetchRequest) else 0
        return self.spec.response.most_bytes + asked
