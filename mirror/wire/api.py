"""The APIs and versions that this client supports."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mirror.wire.messages import acls, admin, epochs, fetch, groups, metadata, produce, session, telemetry, transactions
from mirror.wire.messages.base import Message


@dataclass(frozen=True, slots=True)
class ApiSpec:
    """One API: its key, the lowest and the highest version of this client, and the two message classes.

    The lowest versions are those of Apache Kafka 3.0, which are all flexible (KIP-482) and find several coordinators
    with one request (KIP-699). The highest version of OffsetCommit and OffsetFetch is the last that identifies topics
    by name, because a group's offsets are stored by name. Only brokers send AddPartitionsToTxn 4 and above (KIP-890).
    """

    key: int
    low: int
    high: int
    request: type[Message]
    response: type[Message]


class Api(enum.Enum):
    """The APIs by name.

    ``spec`` is the value, and ``label`` the name as Kafka spells it (``ListOffsets``). They are plain attributes:
    every request reads them, and ``value`` and ``name`` of an Enum are Python calls.
    """

    __hash__ = object.__hash__

    def __init__(self, spec: ApiSpec) -> None:
        self.spec = spec
        self.label = "".join(part.capitalize() for part in self.name.split("_"))

    PRODUCE = ApiSpec(0, 9, 13, produce.ProduceRequest, produce.ProduceResponse)
    FETCH = ApiSpec(1, 12, 18, fetch.FetchRequest, fetch.FetchResponse)
    LIST_OFFSETS = ApiSpec(2, 7, 10, fetch.ListOffsetsRequest, fetch.ListOffsetsResponse)
    METADATA = ApiSpec(3, 11, 13, metadata.MetadataRequest, metadata.MetadataResponse)
    OFFSET_COMMIT = ApiSpec(8, 8, 9, groups.OffsetCommitRequest, groups.OffsetCommitResponse)
    OFFSET_FETCH = ApiSpec(9, 8, 9, groups.OffsetFetchRequest, groups.OffsetFetchResponse)
    FIND_COORDINATOR = ApiSpec(10, 4, 6, metadata.FindCoordinatorRequest, metadata.FindCoordinatorResponse)
    DESCRIBE_GROUPS = ApiSpec(15, 5, 6, groups.DescribeGroupsRequest, groups.DescribeGroupsResponse)
    LIST_GROUPS = ApiSpec(16, 4, 5, groups.ListGroupsRequest, groups.ListGroupsResponse)
    SASL_HANDSHAKE = ApiSpec(17, 1, 1, session.SaslHandshakeRequest, session.SaslHandshakeResponse)
    API_VERSIONS = ApiSpec(18, 3, 4, session.ApiVersionsRequest, session.ApiVersionsResponse)
    CREATE_TOPICS = ApiSpec(19, 5, 7, admin.CreateTopicsRequest, admin.CreateTopicsResponse)
    DELETE_TOPICS = ApiSpec(20, 6, 6, admin.DeleteTopicsRequest, admin.DeleteTopicsResponse)
    DELETE_RECORDS = ApiSpec(21, 2, 2, admin.DeleteRecordsRequest, admin.DeleteRecordsResponse)
    INIT_PRODUCER_ID = ApiSpec(22, 3, 5, produce.InitProducerIdRequest, produce.InitProducerIdResponse)
    OFFSET_FOR_LEADER_EPOCH = ApiSpec(23, 4, 4, epochs.OffsetForLeaderEpochRequest, epochs.OffsetForLeaderEpochResponse)
    ADD_PARTITIONS_TO_TXN = ApiSpec(
        24, 3, 3, transactions.AddPartitionsToTxnRequest, transactions.AddPartitionsToTxnResponse
    )
    ADD_OFFSETS_TO_TXN = ApiSpec(25, 3, 4, transactions.AddOffsetsToTxnRequest, transactions.AddOffsetsToTxnResponse)
    END_TXN = ApiSpec(26, 3, 5, transactions.EndTxnRequest, transactions.EndTxnResponse)
    TXN_OFFSET_COMMIT = ApiSpec(28, 3, 5, transactions.TxnOffsetCommitRequest, transactions.TxnOffsetCommitResponse)
    DESCRIBE_ACLS = ApiSpec(29, 2, 3, acls.DescribeAclsRequest, acls.DescribeAclsResponse)
    CREATE_ACLS = ApiSpec(30, 2, 3, acls.CreateAclsRequest, acls.CreateAclsResponse)
    DELETE_ACLS = ApiSpec(31, 2, 3, acls.DeleteAclsRequest, acls.DeleteAclsResponse)
    DESCRIBE_CONFIGS = ApiSpec(32, 4, 4, admin.DescribeConfigsRequest, admin.DescribeConfigsResponse)
    DESCRIBE_LOG_DIRS = ApiSpec(35, 2, 5, admin.DescribeLogDirsRequest, admin.DescribeLogDirsResponse)
    SASL_AUTHENTICATE = ApiSpec(36, 2, 2, session.SaslAuthenticateRequest, session.SaslAuthenticateResponse)
    CREATE_PARTITIONS = ApiSpec(37, 2, 3, admin.CreatePartitionsRequest, admin.CreatePartitionsResponse)
    DELETE_GROUPS = ApiSpec(42, 2, 2, groups.DeleteGroupsRequest, groups.DeleteGroupsResponse)
    INCREMENTAL_ALTER_CONFIGS = ApiSpec(
        44, 1, 1, admin.IncrementalAlterConfigsRequest, admin.IncrementalAlterConfigsResponse
    )
    OFFSET_DELETE = ApiSpec(47, 0, 0, groups.OffsetDeleteRequest, groups.OffsetDeleteResponse)
    DESCRIBE_CLUSTER = ApiSpec(60, 0, 2, metadata.DescribeClusterRequest, metadata.DescribeClusterResponse)
    DESCRIBE_PRODUCERS = ApiSpec(
        61, 0, 0, transactions.DescribeProducersRequest, transactions.DescribeProducersResponse
    )
    DESCRIBE_TRANSACTIONS = ApiSpec(
        65, 0, 0, transactions.DescribeTransactionsRequest, transactions.DescribeTransactionsResponse
    )
    LIST_TRANSACTIONS = ApiSpec(66, 0, 0, transactions.ListTransactionsRequest, transactions.ListTransactionsResponse)
    CONSUMER_GROUP_DESCRIBE = ApiSpec(
        69, 0, 1, groups.ConsumerGroupDescribeRequest, groups.ConsumerGroupDescribeResponse
    )
    GET_TELEMETRY_SUBSCRIPTIONS = ApiSpec(
        71, 0, 0, telemetry.GetTelemetrySubscriptionsRequest, telemetry.GetTelemetrySubscriptionsResponse
    )
