"""The versions that brokers of old releases offer, from the schemas of Apache Kafka 2.1.1, 2.4.1, 2.8.2 and 3.0.0."""

from __future__ import annotations

from typing import Final

from mirror.wire.api import Api

RELEASES: Final = ("2.1", "2.4", "2.8", "3.0")

_HIGHEST: Final[dict[Api, tuple[int | None, ...]]] = {
    Api.PRODUCE: (7, 8, 9, 9),
    Api.FETCH: (10, 11, 12, 12),
    Api.LIST_OFFSETS: (4, 5, 6, 7),
    Api.METADATA: (7, 9, 11, 11),
    Api.OFFSET_COMMIT: (6, 8, 8, 8),
    Api.OFFSET_FETCH: (5, 6, 7, 8),
    Api.FIND_COORDINATOR: (2, 3, 3, 4),
    Api.DESCRIBE_GROUPS: (2, 5, 5, 5),
    Api.LIST_GROUPS: (2, 3, 4, 4),
    Api.SASL_HANDSHAKE: (1, 1, 1, 1),
    Api.API_VERSIONS: (2, 3, 3, 3),
    Api.CREATE_TOPICS: (3, 5, 7, 7),
    Api.DELETE_TOPICS: (3, 4, 6, 6),
    Api.DELETE_RECORDS: (1, 1, 2, 2),
    Api.INIT_PRODUCER_ID: (1, 2, 4, 4),
    Api.OFFSET_FOR_LEADER_EPOCH: (2, 3, 4, 4),
    Api.ADD_PARTITIONS_TO_TXN: (1, 1, 3, 3),
    Api.ADD_OFFSETS_TO_TXN: (1, 1, 3, 3),
    Api.END_TXN: (1, 1, 3, 3),
    Api.TXN_OFFSET_COMMIT: (2, 2, 3, 3),
    Api.DESCRIBE_ACLS: (1, 1, 2, 2),
    Api.CREATE_ACLS: (1, 1, 2, 2),
    Api.DELETE_ACLS: (1, 1, 2, 2),
    Api.DESCRIBE_CONFIGS: (2, 2, 4, 4),
    Api.DESCRIBE_LOG_DIRS: (1, 1, 2, 2),
    Api.SASL_AUTHENTICATE: (0, 1, 2, 2),
    Api.CREATE_PARTITIONS: (1, 1, 3, 3),
    Api.DELETE_GROUPS: (1, 2, 2, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: (None, 1, 1, 1),
    Api.OFFSET_DELETE: (None, 0, 0, 0),
    Api.DESCRIBE_CLIENT_QUOTAS: (None, None, 1, 1),
    Api.DESCRIBE_QUORUM: (None, None, 0, 0),
    Api.DESCRIBE_CLUSTER: (None, None, 0, 0),
    Api.DESCRIBE_PRODUCERS: (None, None, 0, 0),
    Api.DESCRIBE_TRANSACTIONS: (None, None, None, 0),
    Api.LIST_TRANSACTIONS: (None, None, None, 0),
}
"""By API, the highest version of each release; None: it is not there. The lowest was 0 until 4.0 (KIP-896)."""


def versions_of(release: str) -> dict[Api, tuple[int, int]]:
    """What a broker of ``release`` offers of what this client speaks."""
    column = RELEASES.index(release)
    return {api: (0, high) for api, highest in _HIGHEST.items() if (high := highest[column]) is not None}
