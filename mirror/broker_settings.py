"""Settings of brokers that keep a flow from working: what each causes, and what to do. Pure.

Both the errors that brokers answer and the warnings before a run have their words from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """One setting of brokers, or of one topic."""

    key: str
    effect: str
    """What it causes, as a sentence without a full stop."""
    remedy: str
    """What to do about it."""

    @property
    def words(self) -> str:
        """The effect and what to do."""
        return f"{self.effect}; {self.remedy}"


TRANSACTION_REPLICAS: Final = BrokerSetting(
    "transaction.state.log.replication.factor",
    "brokers do not create __transaction_state with more replicas than there are brokers, and no transactional id has"
    " a coordinator",
    "set transaction.state.log.replication.factor to the number of brokers or less (and transaction.state.log.min.isr)",
)
OFFSETS_REPLICAS: Final = BrokerSetting(
    "offsets.topic.replication.factor",
    "brokers do not create __consumer_offsets with more replicas than there are brokers, and no group has a"
    " coordinator",
    "set offsets.topic.replication.factor to the number of brokers or less",
)
OFFSET_METADATA: Final = BrokerSetting(
    "offset.metadata.max.bytes",
    "the flow stores its progress as the metadata of offsets, which brokers refuse above that size",
    "set offset.metadata.max.bytes to 4096, Kafka's default, or more",
)
CONNECTIONS: Final = BrokerSetting(
    "max.connections.per.ip",
    "brokers close each further connection of a host before they answer",
    "raise max.connections.per.ip or lower connections.per.broker of the target: a worker needs that many and two more",
)
TRANSACTION_TIME: Final = BrokerSetting(
    "transaction.max.timeout.ms",
    "brokers refuse transactions that may be open for longer, and each copy begins with one",
    "raise it to the sum of delivery.timeout.ms, request.timeout.ms and commit-interval-ms, 151000 by default, or lower"
    " these",
)
SEGMENT_BYTES: Final = BrokerSetting(
    "segment.bytes",
    "no batch may be larger than a segment of the topic's log",
    "raise segment.bytes of the topic (log.segment.bytes of the brokers)",
)
ADVERTISED: Final = BrokerSetting(
    "advertised.listeners",
    "clients connect to the addresses that brokers advertise, not to those of bootstrap.servers",
    "check that this host reaches it, or correct advertised.listeners",
)
CONTROLLERS: Final = BrokerSetting(
    "bootstrap.servers",
    "this is a KRaft controller, which does not serve clients",
    "set bootstrap.servers to listeners of brokers",
)

REFUSING_POLICY: Final = "a create.topic.policy.class.name that refuses that topic has the same effect"
"""Brokers send the configurations of their internal topics to the policy, too."""
COORDINATOR_OF: Final = {"group": OFFSETS_REPLICAS, "transactional id": TRANSACTION_REPLICAS}
"""The setting without which keys of a type have no coordinator."""
BY_ERROR: Final = {12: OFFSET_METADATA, 18: SEGMENT_BYTES}
"""The setting that causes an error of a broker, by Kafka's code (OFFSET_METADATA_TOO_LARGE, RECORD_LIST_TOO_LARGE)."""
LEAST_CONNECTIONS: Final = 32
"""What a host with two workers opens to one broker: each has up to 8 for produces (``connections.per.broker``), one for
coordinators and one for all else, the driver some more (measured: 10, 10 and 3; to the source, 2 for each worker)."""
LEAST_METADATA_BYTES: Final = 1_024
"""A flow needs ``offset.metadata.max.bytes`` of so many: the progress of a partition took 274 bytes in transactions, by
sequences it has up to six more fields, one of which grows with each attempt that did not end."""
