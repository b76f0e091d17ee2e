"""One broker to talk to in raw requests, real or fake, and what a transactional producer asks of it."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from mirror.cluster.types import TopicPartition
from mirror.wire import codec
from mirror.wire.api import Api
from mirror.wire.messages import transactions as txn
from mirror.wire.messages.admin import CreatableConfig, CreatableTopic, CreateTopicsRequest
from mirror.wire.messages.base import Message, Records
from mirror.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponsePartition, FetchTopic
from mirror.wire.messages.groups import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic
from mirror.wire.messages.metadata import FindCoordinatorRequest, MetadataRequest, MetadataRequestTopic
from mirror.wire.messages.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)
from mirror.wire.records import TRANSACTIONAL, Batch
from tests.fakes.cluster import FakeCluster
from tests.fakes.connection import ServerConnection
from tests.fakes.record_batches import batches_in, build

BY_NAME = 12
"""The last version of Produce and Fetch that names topics; Metadata has it, too."""
GROUP, TRANSACTION = 0, 1
_NOT_YET = {3, 5, 6, 19, 51}


class Wire(Protocol):
    """A connection to the one broker; ``level`` is its cluster's ``transaction.version``."""

    level: int

    def ask(self, api: Api, version: int, body: Message) -> Any: ...

    def until(self, condition: Callable[[], object]) -> None:
        """Let time pass until ``condition()``."""

    def unix_ms(self) -> int:
        """The brokers' time."""
        ...


class RealWire:
    """A blocking socket."""

    def __init__(self, bootstrap: str, level: int) -> None:
        self.level = level
        host, port = bootstrap.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)

    def ask(self, api: Api, version: int, body: Message) -> Any:
        for segment in codec.encode_request(api, version, 1, "raw", body):
            self._socket.sendall(segment)
        (size,) = struct.unpack(">i", self._read(4))
        return codec.decode_response(api, version, self._read(size))

    def _read(self, size: int) -> bytearray:
        data = bytearray()
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "the broker hung up"
            data += more
        return data

    def until(self, condition: Callable[[], object]) -> None:
        until = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < until, "not within 60 s"
            time.sleep(0.02)

    def unix_ms(self) -> int:
        return int(time.time() * 1000)

    def close(self) -> None:
        self._socket.close()


class FakeWire:
    """A connection to a fake cluster's first broker, and its clock."""

    def __init__(self, cluster: FakeCluster, node: int = 1) -> None:
        self.level = cluster.features.get("transaction.version", 0)
        self.cluster = cluster
        self._server = ServerConnection(cluster, cluster.brokers[node])

    def ask(self, api: Api, version: int, body: Message) -> Any:
        for segment in codec.encode_request(api, version, 1, "raw", body):
            self._server.receive(segment, self.cluster.clock.now())
        self._server.step(self.cluster.clock.now())
        (size,) = struct.unpack_from(">i", self._server.outbox)
        frame = self._server.outbox[4 : 4 + size]
        del self._server.outbox[: 4 + size]
        return codec.decode_response(api, version, frame)

    def until(self, condition: Callable[[], object]) -> None:
        for _ in range(10_000):
            if condition():
                return
            self.cluster.clock.advance(10)
            self.cluster.run_due(self.cluster.clock.now())
        raise AssertionError("not within 100 s of the fake's clock")

    def unix_ms(self) -> int:
        return self.cluster.clock.unix_ms()


@dataclass(slots=True)
class Identity:
    """What a producer says it is."""

    producer_id: int
    epoch: int


class RawProducer:
    """Requests of one transactional id, each answered with its error code. Nothing is retried but what says so."""

    def __init__(self, wire: Wire, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        self.wire = wire
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms

    def find(self) -> None:
        """The first look-up of a coordinator makes the topic that the transactions' states are kept in."""
        self.wire.until(lambda: coordinator(self.wire, TRANSACTION, self.transactional_id) > 0)

    def init_once(self, who: Identity | None = None) -> InitProducerIdResponse:
        """One InitProducerId: as a newcomer, or with the identity to go on from (KIP-360)."""
        known = (-1, -1) if who is None else (who.producer_id, who.epoch)
        body = InitProducerIdRequest(self.transactional_id, self.timeout_ms, *known)
        answer: InitProducerIdResponse = self.wire.ask(Api.INIT_PRODUCER_ID, 5, body)
        return answer

    def init(self, who: Identity | None = None) -> Identity:
        """The same, asked again while the coordinator is not there or a transaction is being ended."""
        self.find()
        reply: list[InitProducerIdResponse] = []

        def settled() -> bool:
            reply.append(self.init_once(who))
            return reply[-1].error_code not in {14, 15, 16, 51}

        self.wire.until(settled)
        assert reply[-1].error_code == 0
        return Identity(reply[-1].producer_id, reply[-1].producer_epoch)

    def add(self, who: Identity, *partitions: TopicPartition) -> list[int]:
        """AddPartitionsToTxn; a code for each."""
        topics: dict[str, list[int]] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, []).append(tp.partition)
        body = txn.AddPartitionsToTxnRequest(
            self.transactional_id,
            who.producer_id,
            who.epoch,
            tuple(txn.AddPartitionsTopic(name, tuple(found)) for name, found in topics.items()),
        )
        answer: txn.AddPartitionsToTxnResponse = self.wire.ask(Api.ADD_PARTITIONS_TO_TXN, 3, body)
        reply = {(t.name, p.partition_index): p.partition_error_code for t in answer.results for p in t.results}
        return [reply[tp.topic, tp.partition] for tp in partitions]

    def begin(self, who: Identity, *partitions: TopicPartition) -> None:
        """AddPartitionsToTxn, as soon as the end of the last transaction is through."""
        self.wire.until(lambda: set(self.add(who, *partitions)) == {0})

    def write(self, who: Identity, tp: TopicPartition, sequence: int = 0) -> None:
        """One record into ``tp`` by the rules of the cluster's level; it begins the transaction, if need be."""
        if self.wire.level < 2:
            self.begin(who, tp)
        self.settle(who, tp, sequence, version=12 if self.wire.level > 1 else 11)

    def settle(self, who: Identity, tp: TopicPartition, sequence: int, *, version: int = 11) -> None:
        """One record, sent again while a new topic's leader or the id's coordinator is not known everywhere."""
        codes: list[int] = []

        def settled() -> bool:
            codes.append(self.produce(who, tp, sequence, version=version))
            return codes[-1] not in _NOT_YET

        self.wire.until(settled)
        assert codes[-1] == 0

    def produce(
        self,
        who: Identity,
        tp: TopicPartition,
        sequence: int,
        *,
        version: int = 11,
        attributes: int = TRANSACTIONAL,
        named: bool = True,
    ) -> int:
        """One record, transactional; its code. Of now: brokers would roll a segment for the marker, or delete it."""
        data = build(
            (b"value",),
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            base_sequence=sequence,
            attributes=attributes,
            timestamp=int(time.time() * 1000),
        )
        part = ProducePartition(tp.partition, Records.of((data,)))
        name = self.transactional_id if named else None
        body = ProduceRequest(-1, 10_000, (ProduceTopic(tp.topic, None, (part,)),), name)
        answer = self.wire.ask(Api.PRODUCE, version, body)
        return int(answer.responses[0].partition_responses[0].error_code)

    def append(
        self,
        who: Identity,
        tp: TopicPartition,
        sequence: int,
        count: int = 1,
        *,
        age_ms: int = 0,
        acks: int = -1,
    ) -> tuple[int, int]:
        """``count`` records outside of transactions, ``age_ms`` old; (error code, base offset)."""
        data = build(
            [b"value"] * count,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            base_sequence=sequence,
            timestamp=self.wire.unix_ms() - age_ms,
        )
        part = ProducePartition(tp.partition, Records.of((data,)))
        body = ProduceRequest(acks, 10_000, (ProduceTopic(tp.topic, None, (part,)),))
        reply = self.wire.ask(Api.PRODUCE, 11, body).responses[0].partition_responses[0]
        return int(reply.error_code), int(reply.base_offset)

    def fence(self, *partitions: TopicPartition) -> Identity:
        """A transaction without data over ``partitions``, committed; the identity that results."""
        who = self.init()
        self.begin(who, *partitions)
        reply = self.end(who, commit=True)
        assert reply.error_code == 0
        return Identity(who.producer_id, reply.producer_epoch) if self.wire.level > 1 else who

    def end(self, who: Identity, *, commit: bool, version: int | None = None) -> txn.EndTxnResponse:
        """EndTxn, in the version that the cluster's level asks for."""
        version = version or (5 if self.wire.level > 1 else 4)
        body = txn.EndTxnRequest(self.transactional_id, who.producer_id, who.epoch, commit)
        answer: txn.EndTxnResponse = self.wire.ask(Api.END_TXN, version, body)
        return answer

    def add_group(self, who: Identity, group: str) -> int:
        """AddOffsetsToTxn."""
        body = txn.AddOffsetsToTxnRequest(self.transactional_id, who.producer_id, who.epoch, group)
        return int(self.wire.ask(Api.ADD_OFFSETS_TO_TXN, 4, body).error_code)

    def commit_offset(self, who: Identity, group: str, tp: TopicPartition, offset: int, *, version: int) -> int:
        """TxnOffsetCommit."""
        part = txn.TxnOffsetCommitPartition(tp.partition, offset, 3, "stored")
        topic = txn.TxnOffsetCommitTopic(tp.topic, (part,))
        body = txn.TxnOffsetCommitRequest(self.transactional_id, group, who.producer_id, who.epoch, (topic,))
        answer = self.wire.ask(Api.TXN_OFFSET_COMMIT, version, body)
        return int(answer.topics[0].partitions[0].error_code)


def create_topic(wire: Wire, name: str, partitions: int = 1, **configs: str) -> list[TopicPartition]:
    """A new topic's partitions, led; ``configs`` with _ for a dot."""
    given = tuple(CreatableConfig(key.replace("_", "."), value) for key, value in configs.items())
    topic = CreatableTopic(name, partitions, 1, (), given)
    answer = wire.ask(Api.CREATE_TOPICS, 7, CreateTopicsRequest((topic,), 10_000))
    assert answer.topics[0].error_code == 0

    tps = [TopicPartition(name, partition) for partition in range(partitions)]

    def led() -> bool:
        reply = leaders(wire, name)
        return len(reply) == partitions and min(reply.values()) > 0

    def serves() -> bool:
        return all(_ask_to_fetch(wire, tp).error_code == 0 for tp in tps)

    wire.until(led)
    if _has_one_broker(wire):  # It names itself as the leader a little before it is one.
        wire.until(serves)
    return tps


def _has_one_broker(wire: Wire) -> bool:
    return len(wire.ask(Api.METADATA, BY_NAME, MetadataRequest(())).brokers) == 1


def coordinator(wire: Wire, kind: int, key: str) -> int:
    """The node that coordinates ``key`` (GROUP or TRANSACTION), -1 where there is none yet."""
    reply = wire.ask(Api.FIND_COORDINATOR, 4, FindCoordinatorRequest(kind, (key,)))
    return int(reply.coordinators[0].node_id)


def leaders(wire: Wire, topic: str) -> dict[int, int]:
    """Partition -> its leader."""
    reply = wire.ask(Api.METADATA, BY_NAME, MetadataRequest((MetadataRequestTopic(topic),))).topics[0]
    return {part.partition_index: part.leader_id for part in reply.partitions}


def await_group(wire: Wire, group: str) -> None:
    """Until the group has a coordinator that answers."""

    def there() -> bool:
        return coordinator(wire, GROUP, group) > 0 and fetch_offset(wire, group, TopicPartition("none", 0))[0] == 0

    wire.until(there)


def fetch_offset(wire: Wire, group: str, tp: TopicPartition, *, stable: bool = False) -> tuple[int, int]:
    """(error code, committed offset)."""
    asked = OffsetFetchGroup(group, (OffsetFetchTopic(tp.topic, (tp.partition,)),))
    reply = wire.ask(Api.OFFSET_FETCH, 8, OffsetFetchRequest((asked,), stable)).groups[0]
    if reply.error_code:
        return reply.error_code, -1
    part = reply.topics[0].partitions[0]
    return part.error_code, part.committed_offset


def log_of(wire: Wire, tp: TopicPartition) -> tuple[list[Batch], int]:
    """(every batch, last stable offset)."""
    reply = _fetch(wire, tp)
    return batches_in(reply.records or b""), reply.last_stable_offset


def _fetch(wire: Wire, tp: TopicPartition) -> FetchResponsePartition:
    reply = _ask_to_fetch(wire, tp)
    assert reply.error_code == 0
    return reply


def _ask_to_fetch(wire: Wire, tp: TopicPartition) -> FetchResponsePartition:
    part = FetchPartition(tp.partition, 0, 1 << 20)
    body = FetchRequest(0, 0, 1 << 20, 0, (FetchTopic(tp.topic, None, (part,)),))
    reply: FetchResponsePartition = wire.ask(Api.FETCH, BY_NAME, body).responses[0].partitions[0]
    return reply


def known_producers(wire: Wire, tp: TopicPartition) -> dict[int, tuple[int, int]]:
    """Producer id -> (epoch, last sequence), as the broker of ``wire`` knows them (KIP-664)."""
    asked = txn.DescribeProducersRequest((txn.DescribeProducersTopic(tp.topic, (tp.partition,)),))
    reply = wire.ask(Api.DESCRIBE_PRODUCERS, 0, asked).topics[0].partitions[0]
    assert reply.error_code == 0
    return {one.producer_id: (one.producer_epoch, one.last_sequence) for one in reply.active_producers}


def high_watermark(wire: Wire, tp: TopicPartition) -> int:
    return int(_fetch(wire, tp).high_watermark)


def shape(wire: Wire, tp: TopicPartition) -> list[tuple[str, int]]:
    """The log in short: ("data" | "commit" | "abort", producer epoch) for each batch."""
    kinds = {0: "abort", 1: "commit"}
    batches, _ = log_of(wire, tp)
    # A marker's record: length, attributes, deltas, key length, then version i16 and kind i16.
    return [
        (kinds[struct.unpack_from(">h", one.view, 61 + 5 + 2)[0]] if one.is_control else "data", one.producer_epoch)
        for one in batches
    ]
