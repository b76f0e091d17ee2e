"""What keeps a flow from working: the effect of each cause, and what to do. Pure.

The errors of clients and runs, the warnings before a run, and ``mirror doctor`` have their words from here, so that all
of them say the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from mirror import extras


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause."""

    key: str
    """The setting that decides: of the brokers, of a topic, of a cluster in the configuration, or of this host."""
    effect: str
    """What it causes, as a sentence without a full stop."""
    remedy: str
    """What to do about it."""
    is_observation: bool = False
    """The effect is what was observed: in a line of an error, only the place stands before it."""

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
CONNECTION_OVERRIDES: Final = Cause(
    "max.connections.per.ip.overrides",
    "brokers close each further connection of a worker on such a host",
    "raise max.connections.per.ip.overrides, or run no worker there",
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
TRANSACTION_MIN_ISR: Final = Cause(
    "transaction.state.log.min.isr",
    "no transaction begins or ends while fewer replicas of __transaction_state are in sync",
    "set transaction.state.log.min.isr below transaction.state.log.replication.factor",
)
MIN_ISR: Final = Cause(
    "min.insync.replicas",
    "nothing can be written to topics with fewer replicas",
    "lower min.insync.replicas, or raise default.replication.factor",
)
SINGLE_REPLICA: Final = Cause(
    "offsets.topic.replication.factor",
    "progress is lost with the disk of one broker",
    "set it to 3 before the topic is made; give an existing one more replicas with kafka-reassign-partitions",
)
SOCKET_REQUEST: Final = Cause(
    "socket.request.max.bytes",
    "brokers close the connection at a request that is larger",
    "raise socket.request.max.bytes, or lower max.request.size of the flow's producer and max.message.bytes of the"
    " source topics",
)
IDLE: Final = Cause(
    "connections.max.idle.ms",
    "the brokers close idle connections before this client does, and a request on one of them is sent again",
    "set connections.max.idle.ms of the cluster's table below that of its brokers",
)
AUTO_CREATE: Final = Cause(
    "auto.create.topics.enable",
    "a consumer that asks for a topic before the flow has made it gets one with the default number of partitions",
    "set auto.create.topics.enable to false, or start consumers after the first run",
)
APPEND_TIME: Final = Cause(
    "message.timestamp.type",
    "records get the time at which they are copied: retention begins again, and a search by time finds other records",
    "set message.timestamp.type of the target topic to CreateTime",
)
OLDEST_TIMESTAMP: Final = Cause(
    "message.timestamp.before.max.ms",
    "records that are older are refused",
    'raise message.timestamp.before.max.ms of the target topic, or set on-bad-timestamp = "clamp"',
)
MESSAGE_BYTES: Final = Cause(
    "max.message.bytes",
    "larger batches are encoded again as smaller ones, and a larger record ends the copy of its partition",
    "raise max.message.bytes of the target topic",
)
QUOTA: Final = Cause(
    "producer_byte_rate",
    "brokers throttle what is faster, and the lag grows while the source writes faster than that",
    "raise the quota, or keep it as the limit of the copy",
)
REQUEST_QUOTA: Final = Cause(
    "request_percentage",
    "brokers delay their answers to a client whose requests take more of their time, and the lag grows meanwhile",
    "raise the quota, or have fewer and larger requests (fetch.min.bytes, linger.ms)",
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
    is_observation=True,
)
AWAY: Final = Cause(
    "bootstrap.servers",
    "its flows wait, or fail",
    "check its bootstrap.servers, and that it runs",
)
SPARE_AWAY: Final = Cause(
    "bootstrap.servers",
    "no flow can start from it while the other servers are away",
    "correct it in bootstrap.servers, or remove it",
)
WANTS_TLS: Final = Cause(
    "security.protocol",
    "the listener speaks TLS",
    "set security.protocol to SSL or SASL_SSL",
    is_observation=True,
)
NO_TLS: Final = Cause(
    "security.protocol",
    "the listener does not speak TLS",
    "set security.protocol to PLAINTEXT or SASL_PLAINTEXT",
    is_observation=True,
)
WANTS_SASL: Final = Cause(
    "security.protocol",
    "the listener wants SASL",
    "set security.protocol to SASL_SSL or SASL_PLAINTEXT, and sasl.mechanism to one that it offers",
    is_observation=True,
)
NO_SASL: Final = Cause(
    "security.protocol",
    "the listener does not use SASL",
    "set security.protocol to PLAINTEXT or SSL",
    is_observation=True,
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
UNANSWERED: Final = Cause(
    "listeners",
    "the partitions that it leads are neither read nor written",
    "check that it runs, and what its log says",
)
ONE_SERVER: Final = Cause(
    "bootstrap.servers", "nothing begins while that one is away", "name two or three brokers in bootstrap.servers"
)
EXPIRING: Final = Cause(
    "ssl.keystore.location", "then no connection is accepted, and the flows of the cluster stand still", "renew it"
)
EXPIRY_UNKNOWN: Final = Cause(
    "ssl.keystore.location",
    "its end is not announced, and no connection is accepted after it",
    "read its dates with openssl x509 -noout -dates",
)
CLOCK: Final = Cause(
    "NTP",
    "ages, lags and whether a run is alive are computed with both clocks, and tokens and tickets are refused by a wrong"
    " one",
    "let NTP or chrony keep both clocks",
)
CLOCK_UNKNOWN: Final = Cause(
    "DescribeQuorum",
    "a wrong clock shows in ages, lags, tokens and tickets",
    "compare the clocks by hand, or grant Describe on the cluster, where that is what is missing",
)
RELEASES_OF_BROKERS: Final = Cause(
    "inter.broker.protocol.version",
    "a flow can use what all of them offer",
    "finish the upgrade of the brokers, if it is one",
)
SETTINGS_DIFFER: Final = Cause(
    "DescribeConfigs",
    "what a flow may do, and how its records are kept, depends on the broker that leads a partition",
    "give all brokers the same value",
)
SETTINGS_UNKNOWN: Final = Cause(
    "DescribeConfigs",
    "what keeps a flow from working, or slows it, is not seen beforehand",
    "grant DescribeConfigs on the cluster, and on the flow's topics",
)
NO_NUMBER: Final = Cause(
    "DescribeConfigs",
    "whether it keeps a flow from working is not seen beforehand",
    "read it with the tools of the cluster's vendor",
)
MANY_TOPICS: Final = Cause(
    "topics", "to read those of all topics may take longer than the diagnosis", "run mirror plan, which compares all"
)

# --- this host

JAVA: Final = Cause(
    "JAVA_HOME",
    "runs, streams and verify are Spark jobs, which need a JVM",
    "install a JDK 17, or set JAVA_HOME to one",
)
SPARK: Final = Cause(
    "pyspark", "runs, streams and verify are Spark jobs; the other commands need none", extras.install(extras.SPARK)
)
RELEASES: Final = Cause(
    "pyspark", "it may fail in a way that no test has shown", "use releases that jobs/README.md lists together"
)
USER_NAME: Final = Cause(
    "/etc/passwd",
    "Hadoop's login and Ivy take a name and a home from it",
    "nothing for mirror run and mirror stream, which give both; spark-submit needs -Duser.home=FOLDER",
)
OWN_NAME: Final = Cause(
    "/etc/hosts",
    "Spark looks it up when it starts, and the executors of a cluster connect to it",
    "add it to /etc/hosts, or set SPARK_LOCAL_HOSTNAME",
)
CORES: Final = Cause(
    "cpu.max",
    "a task takes a core while it copies, and stands still while the container's share is used up",
    "raise the container's CPU limit, or set --master to local[N] with as many slots",
)
MEMORY: Final = Cause(
    "memory.max",
    "the kernel ends a process that needs more than there is, and its partitions are copied again from their progress",
    "give it more, set --master to local[N] with fewer slots, or lower buffer.memory and fetch.max.bytes",
)
WORKER_FILES: Final = Cause(
    "ulimit -n", "a worker that may open no more connections does not reach its brokers", "raise the limit (ulimit -n)"
)
TEMPORARY: Final = Cause("TMPDIR", "Spark and its workers exchange data there", "set TMPDIR to one that can be written")
FOLDER: Final = Cause(
    "--report-dir",
    "a run keeps its log and its report there, or Spark its temporary files",
    "choose one in which this user can make files (--report-dir, SPARK_LOCAL_DIRS), or grant it",
)
DISK: Final = Cause(
    "--report-dir",
    "with a full disk a run has no report, and Spark fails",
    "free some space, or choose another folder (--report-dir, SPARK_LOCAL_DIRS)",
)
OPEN_FILES: Final = Cause(
    "ulimit -Hn",
    "Spark's JVM says of a jar that it cannot open that a class is missing",
    "raise the hard limit (ulimit -Hn)",
)
LEAST_FILES: Final = 1_024
"""The JVM opens Spark's jars, about 260, and raises its own limit to the hard one. With 256 it did not start."""
HANGING: Final = Cause(
    "df",
    "a run would wait there, too: a disk, or the lookup of the host's own name, hangs",
    "try df on the report folder and on SPARK_LOCAL_DIRS, and getent hosts with the host's name",
)
CAUSES: Final = tuple(one for one in list(globals().values()) if isinstance(one, Cause))
"""All of them."""
