"""What keeps a flow from working: the effect of each cause, and what to do. Pure.

The errors of clients and runs, the warnings before a run, and ``mirror doctor`` have their words from here, so that all
of them say the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause."""

    key: str
    """The setting that decides: of the brokers, of a topic, of a cluster in the configuration, or of this host."""
    effect: str
    """What it causes, as a sentence without a full stop."""
    remedy: str
    """What to do about it."""

    @property
    def words(self) -> str:
        """The effect and what to do."""
        return f"{self.effect}; {self.remedy}"


class Fault(NamedTuple):
    """A cause that was found."""

    what: str
    """What was found, and where."""
    cause: Cause

    @property
    def line(self) -> str:
        """It and the words of its cause."""
        return f"{self.what}: {self.cause.words}"


# --- settings of brokers and topics

TRANSACTION_REPLICAS: Final = Cause(
    "transaction.state.log.replication.factor",
    "brokers do not create __transaction_state with more replicas than there are brokers, and no transactional id has"
    " a coordinator",
    "set transaction.state.log.replication.factor to the number of brokers or less (and transaction.state.log.min.isr)",
)
OFFSETS_REPLICAS: Final = Cause(
    "offsets.topic.replication.factor",
    "brokers do not create __consumer_offsets with more replicas than there are brokers, and no group has a"
    " coordinator",
    "set offsets.topic.replication.factor to the number of brokers or less",
)
OFFSET_METADATA: Final = Cause(
    "offset.metadata.max.bytes",
    "the flow stores its progress as the metadata of offsets, which brokers refuse above that size",
    "set offset.metadata.max.bytes to 4096, Kafka's default, or more",
)
CONNECTIONS: Final = Cause(
    "max.connections.per.ip",
    "brokers close each further connection of a host before they answer",
    "raise max.connections.per.ip or lower connections.per.broker of the target: a worker needs that many and two more",
)
TRANSACTION_TIME: Final = Cause(
    "transaction.max.timeout.ms",
    "brokers refuse transactions that may be open for longer, and each copy begins with one",
    "raise it to the sum of delivery.timeout.ms, request.timeout.ms and commit-interval-ms, 151000 by default, or lower"
    " these",
)
ID_EXPIRATION: Final = Cause(
    "transactional.id.expiration.ms",
    "its brokers may forget a fence that is still in use, and an attempt that was fenced could then double records",
    'set it to 7200000 ms or more, or set exactly-once-by = "transactions"',
)
SEGMENT_BYTES: Final = Cause(
    "segment.bytes",
    "no batch may be larger than a segment of the topic's log",
    "raise segment.bytes of the topic (log.segment.bytes of the brokers)",
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
LEAST_ID_EXPIRATION_MS: Final = 7_200_000
"""An attempt sends for up to an hour after its fence, and its next fence takes its time."""
LEAST_METADATA_BYTES: Final = 1_024
"""A flow needs ``offset.metadata.max.bytes`` of so many: the progress of a partition took 274 bytes in transactions, by
sequences it has up to six more fields, one of which grows with each attempt that did not end."""

# --- connections to a cluster

ADVERTISED: Final = Cause(
    "advertised.listeners",
    "clients connect to the addresses that brokers advertise, not to those of bootstrap.servers",
    "check that this host reaches it, or correct advertised.listeners",
)
CONTROLLERS: Final = Cause(
    "bootstrap.servers",
    "this is a KRaft controller, which does not serve clients",
    "set bootstrap.servers to listeners of brokers",
)
AWAY: Final = Cause(
    "bootstrap.servers",
    "its flows wait, or fail",
    "check its bootstrap.servers, and that it runs",
)
WANTS_TLS: Final = Cause("security.protocol", "the listener speaks TLS", "set security.protocol to SSL or SASL_SSL")
NO_TLS: Final = Cause(
    "security.protocol",
    "the listener does not speak TLS",
    "set security.protocol to PLAINTEXT or SASL_PLAINTEXT",
)
WANTS_SASL: Final = Cause(
    "security.protocol",
    "the listener wants SASL",
    "set security.protocol to SASL_SSL or SASL_PLAINTEXT, and sasl.mechanism to one that it offers",
)
NO_SASL: Final = Cause(
    "security.protocol", "the listener does not use SASL", "set security.protocol to PLAINTEXT or SSL"
)
OTHER_HOST: Final = Cause(
    "ssl.endpoint.identification.algorithm",
    "another server may answer in its name",
    "connect by one of the certificate's names",
)
EXPIRED: Final = Cause("ssl.keystore.location", "no client accepts it", "it must be renewed")
UNTRUSTED: Final = Cause(
    "ssl.truststore.location",
    "no certificate of the truststore has signed it",
    "see ssl.truststore.location",
)
CLIENT_CERTIFICATE: Final = Cause(
    "ssl.keystore.location", "it may want a certificate of this client", "see ssl.keystore.location"
)
LOGIN: Final = Cause(
    "sasl.mechanism",
    "the cluster does not accept this login",
    "check sasl.mechanism and its credentials, and that the cluster knows the user",
)

# --- this host

OPEN_FILES: Final = Cause(
    "ulimit -Hn",
    "Spark's JVM says of a jar that it cannot open that a class is missing",
    "raise the hard limit (ulimit -Hn)",
)
LEAST_FILES: Final = 1_024
"""The JVM opens Spark's jars, about 260, and raises its own limit to the hard one. With 256 it did not start."""
