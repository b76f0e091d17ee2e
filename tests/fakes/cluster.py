"""A Kafka cluster in memory, as franz-go's kfake: brokers that speak real bytes, without sockets, threads or clocks."""

from __future__ import annotations

import random
import uuid
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mirror.cluster.types import TopicPartition
from mirror.wire.api import Api
from mirror.wire.messages.base import Message
from mirror.wire.messages.groups import OffsetCommitPartition
from mirror.wire.messages.metadata import MetadataTopic
from mirror.wire.messages.transactions import TxnOffsetCommitPartition
from tests.fakes import (
    api_admin,
    api_fetch,
    api_groups,
    api_metadata,
    api_open_transactions,
    api_produce,
    api_session,
    api_topics,
    api_transactions,
)
from tests.fakes.clock import FakeClock
from tests.fakes.control import Control, ServerCall
from tests.fakes.log import PartitionLog
from tests.fakes.releases import versions_of
from tests.fakes.sessions import Sessions
from tests.fakes.transactions import Transactions

Handler = Callable[["FakeCluster", ServerCall], Message | None]
"""The answer, or None for "not yet": then it is asked again, at ``call.wait_until_ms`` at the latest."""

_HANDLERS: Final[dict[Api, Handler]] = {
    Api.API_VERSIONS: api_session.api_versions,
    Api.METADATA: api_metadata.metadata,
    Api.FIND_COORDINATOR: api_metadata.find_coordinator,
    Api.PRODUCE: api_produce.produce,
    Api.INIT_PRODUCER_ID: api_transactions.init_producer_id,
    Api.ADD_PARTITIONS_TO_TXN: api_transactions.add_partitions_to_txn,
    Api.ADD_OFFSETS_TO_TXN: api_transactions.add_offsets_to_txn,
    Api.END_TXN: api_transactions.end_txn,
    Api.TXN_OFFSET_COMMIT: api_transactions.txn_offset_commit,
    Api.FETCH: api_fetch.fetch,
    Api.LIST_OFFSETS: api_fetch.list_offsets,
    Api.OFFSET_FOR_LEADER_EPOCH: api_fetch.offset_for_leader_epoch,
    Api.GET_TELEMETRY_SUBSCRIPTIONS: api_session.get_telemetry_subscriptions,
    Api.OFFSET_COMMIT: api_groups.offset_commit,
    Api.OFFSET_FETCH: api_groups.offset_fetch,
    Api.CREATE_TOPICS: api_topics.create_topics,
    Api.CREATE_PARTITIONS: api_topics.create_partitions,
    Api.DESCRIBE_CONFIGS: api_topics.describe_configs,
    Api.INCREMENTAL_ALTER_CONFIGS: api_topics.incremental_alter_configs,
    Api.DELETE_TOPICS: api_topics.delete_topics,
    Api.DELETE_RECORDS: api_topics.delete_records,
    Api.DESCRIBE_LOG_DIRS: api_admin.describe_log_dirs,
    Api.LIST_GROUPS: api_admin.list_groups,
    Api.DESCRIBE_GROUPS: api_admin.describe_groups,
    Api.CONSUMER_GROUP_DESCRIBE: api_admin.consumer_group_describe,
    Api.DELETE_GROUPS: api_admin.delete_groups,
    Api.DESCRIBE_PRODUCERS: api_open_transactions.describe_producers,
    Api.LIST_TRANSACTIONS: api_open_transactions.list_transactions,
    Api.DESCRIBE_TRANSACTIONS: api_open_transactions.describe_transactions,
    Api.OFFSET_DELETE: api_admin.offset_delete,
    Api.DESCRIBE_CLUSTER: api_metadata.describe_cluster,
    Api.DESCRIBE_CLIENT_QUOTAS: api_admin.describe_client_quotas,
    Api.DESCRIBE_QUORUM: api_metadata.describe_quorum,
    Api.DESCRIBE_ACLS: api_admin.describe_acls,
    Api.CREATE_ACLS: api_admin.create_acls,
    Api.DELETE_ACLS: api_admin.delete_acls,
}


@dataclass(slots=True)
class FakeBroker:
    """One broker; where it is not ``up`` it refuses connections at once."""

    node: int
    host: str
    port: int
    up: bool = True
    connect_ms: int | None = 0
    """How long connecting takes; None: for ever, as behind a firewall that drops."""
    generation: int = 0
    """Counts restarts: connections made before are broken."""


@dataclass(slots=True)
class FakeTopic:
    """A topic and its partitions' logs."""

    name: str
    topic_id: uuid.UUID
    partitions: list[PartitionLog]
    configs: dict[str, str] = field(default_factory=dict)
    replicas: int | None = None
    """How many each partition has; None: one on each broker."""


@dataclass(slots=True)
class GroupOffset:
    """A committed offset."""

    offset: int
    leader_epoch: int
    metadata: str | None


@dataclass(slots=True)
class GroupTransactions:
    """What a group's coordinator knows of transactions, by producer id: offsets that wait for the end, and epochs."""

    pending: dict[int, dict[TopicPartition, GroupOffset]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)


class FakeCluster:
    """``brokers`` brokers, numbered from 1. Their state is here, to be looked at and changed by tests.

    Transactions are those of version 1, or of version 2 where ``features["transaction.version"]`` is 2. ``marker_ms``
    pass between the end of one and its markers; with ``verifies`` False the brokers take transactional batches of
    partitions that were not added, as those before 3.6. Where ``works_off_ms`` is set, what a broker was sent and had
    not handled when the connection broke is handled that much later: a late copy of what was sent again meanwhile.
    ``release``: the brokers speak the versions of that one (:mod:`tests.fakes.releases`). Without ``keeps_metadata``
    they keep only the offset of what groups commit, as Tansu.
    """

    def __init__(
        self, brokers: int = 1, *, cluster_id: str = "fake-cluster", seed: int = 0, release: str | None = None
    ) -> None:
        self.clock = FakeClock()
        self.cluster_id = cluster_id
        self.brokers = {n: FakeBroker(n, f"broker-{n}.fake", 9092) for n in range(1, brokers + 1)}
        self.controller = 1
        self.controller_ms: Callable[[], int] = self.clock.unix_ms
        """The clock of the controller, in ms since 1970."""
        self.topics: dict[str, FakeTopic] = {}
        self.groups: dict[str, dict[TopicPartition, GroupOffset]] = defaultdict(dict)
        self.on_committed: Callable[[str], None] = lambda _group: None
        """Called with a group when offsets of it were committed."""
        self.coordinators: dict[str, int] = {}
        self.group_transactions: dict[str, GroupTransactions] = defaultdict(GroupTransactions)
        self.transactions = Transactions(self)
        self.marker_ms = 0
        self.verifies = True
        self.keeps_metadata = True
        self.works_off_ms: int | None = None
        self.next_producer_id = 1000
        self.versions = {api: (0, api.value.high) for api in _HANDLERS} if release is None else versions_of(release)
        self.features: dict[str, int] = {}
        self.feature_changes = 0
        self.control = Control()
        self.admin = api_admin.AdminState()
        self.sessions = Sessions()
        self.lagging: dict[int, dict[str, MetadataTopic]] = {}
        self.received: list[ServerCall] = []
        self.worked_off: list[ServerCall] = []
        self._ids = random.Random(seed)
        self._scheduled: list[tuple[int, Callable[[], object]]] = []
        self._connections = 0

    # --- what tests set up

    @property
    def has_topic_ids(self) -> bool:
        """Whether its metadata have the ids of topics (KIP-516)."""
        return self.versions[Api.METADATA][1] >= api_metadata.WITH_TOPIC_IDS

    @property
    def bootstrap(self) -> str:
        """For ``bootstrap.servers``: the first broker."""
        first = next(iter(self.brokers.values()))
        return f"{first.host}:{first.port}"

    def committed(self, part: OffsetCommitPartition | TxnOffsetCommitPartition) -> GroupOffset:
        """What is kept of what a group commits for one partition."""
        if not self.keeps_metadata:
            return GroupOffset(part.committed_offset, -1, "")
        return GroupOffset(part.committed_offset, part.committed_leader_epoch, part.committed_metadata)

    def add_broker(self) -> int:
        node = max(self.brokers) + 1
        self.brokers[node] = FakeBroker(node, f"broker-{node}.fake", 9092)
        return node

    def add_topic(self, name: str, partitions: int = 1, **configs: str) -> FakeTopic:
        """Leaders go round the brokers; a topic of that name that was there is replaced, under another id."""
        topic = FakeTopic(name, self.new_id(), [], dict(configs))
        self.topics[name] = topic
        self.grow(topic, partitions)
        return topic

    def upgrade(self, feature: str, level: int) -> None:
        """Clients learn of it on their next connections (KIP-584)."""
        self.features[feature] = level
        self.feature_changes += 1

    def new_id(self) -> uuid.UUID:
        return uuid.UUID(int=self._ids.getrandbits(128) | 1)

    def grow(self, topic: FakeTopic, partitions: int) -> None:
        nodes = list(self.brokers)
        while len(topic.partitions) < partitions:
            topic.partitions.append(PartitionLog(leader=nodes[len(topic.partitions) % len(nodes)]))

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        return self.topics[topic].partitions[partition]

    def move(self, topic: str, partition: int, node: int) -> None:
        """``node`` leads from now on, in a new epoch."""
        self.log(topic, partition).move(node)

    def coordinator(self, key: str) -> int:
        """The node that coordinates ``key``."""
        nodes = list(self.brokers)
        return self.coordinators.setdefault(key, nodes[zlib.crc32(key.encode()) % len(nodes)])

    def elect_uncleanly(self, topic: str, partition: int, node: int, end: int, *, new_replica: bool = False) -> None:
        """``node`` leads from now on, whose log ends at ``end``: what was behind it is lost."""
        log = self.log(topic, partition)
        log.truncate(end, new_replica=new_replica)
        log.move(node)

    def broker_config(self, node: int, key: str) -> str:
        """The value in force at ``node``."""
        return api_topics.broker_config(self, node, key)

    def lag(self, *nodes: int) -> None:
        """From now on these brokers' metadata stays as it is, until they :meth:`catch_up`: the log of it comes late."""
        for node in nodes:
            self.lagging[node] = {name: api_metadata.topic_as_it_is(self, name) for name in self.topics}

    def catch_up(self, *nodes: int) -> None:
        for node in nodes:
            del self.lagging[node]

    def kill(self, node: int) -> None:
        """The broker is gone: its connections break, new ones are refused."""
        broker = self.brokers[node]
        broker.up = False
        broker.generation += 1

    def start(self, node: int) -> None:
        self.brokers[node].up = True

    def disconnect(self, node: int) -> None:
        """Every connection to ``node`` breaks; it can be connected to again."""
        self.brokers[node].generation += 1

    def after(self, ms: int, do: Callable[[], object]) -> None:
        """``do`` happens when the clock gets there."""
        self._scheduled.append((self.clock.now() + ms, do))
        self._scheduled.sort(key=lambda pair: pair[0])

    def calls(self, api: Api) -> list[ServerCall]:
        """The requests of this kind that reached a broker, in order."""
        return [call for call in self.received if call.api is api]

    # --- what the fake network drives

    def new_connection_id(self) -> int:
        self._connections += 1
        return self._connections

    def broker_at(self, address: tuple[str, int]) -> FakeBroker | None:
        return next((b for b in self.brokers.values() if (b.host, b.port) == address), None)

    def run_due(self, now: int) -> bool:
        """Do what was planned up to ``now``; whether there was anything."""
        due = [do for at, do in self._scheduled if at <= now]
        self._scheduled = [pair for pair in self._scheduled if pair[0] > now]
        for do in due:
            do()
        return bool(due)

    def next_due_ms(self) -> int | None:
        return self._scheduled[0][0] if self._scheduled else None

    def supports(self, api: Api, version: int) -> bool:
        low, high = self.versions.get(api, (1, 0))
        return low <= version <= high

    def handle(self, call: ServerCall) -> Message | None:
        return _HANDLERS[call.api](self, call)

    # --- what handlers share

    def expire_producers(self, log: PartitionLog) -> None:
        """Do what the leader's periodical check did meanwhile (``producer.id.expiration.check.interval.ms``)."""
        interval_ms = int(self.broker_config(log.leader, "producer.id.expiration.check.interval.ms"))
        checked_ms = self.clock.unix_ms() - self.clock.now() % interval_ms
        log.expire_producers(checked_ms, int(self.broker_config(log.leader, "producer.id.expiration.ms")))

    def new_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    def is_up(self, node: int) -> bool:
        return node in self.brokers and self.brokers[node].up

    def end_group_transaction(self, group: str, producer_id: int, epoch: int, *, commit: bool) -> None:
        """The marker among the group's offsets."""
        result = self.group_transactions[group]
        offsets = result.pending.pop(producer_id, {})
        result.epochs[producer_id] = max(epoch, result.epochs.get(producer_id, -1))
        if commit:
            self.groups[group].update(offsets)
            self.on_committed(group)

    def topic_of(self, name: str, topic_id: uuid.UUID | None) -> FakeTopic | None:
        """By id where one is given, else by name."""
        if topic_id is None or name:
            return self.topics.get(name)
        return next((t for t in self.topics.values() if t.topic_id == topic_id), None)

    def partition_of(self, topic: FakeTopic | None, partition: int) -> PartitionLog | None:
        known = topic is not None and 0 <= partition < len(topic.partitions)
        return topic.partitions[partition] if known and topic is not None else None
