"""Consumer groups that commit every second, made cheaply, and what clusters say about the commits afterwards."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from mirror.cluster.calls.group_offset_calls import offset_commit_request
from mirror.cluster.types import OffsetAndMetadata
from mirror.cluster.types import TopicPartition as Tp
from mirror.wire.api import Api
from mirror.wire.codec import encode_request

_CONNECTIONS: Final = 16
"""A broker answers one request of a connection at a time, and a commit only once it is written."""
_SLICES: Final = 20
"""A second's commits are sent in so many parts, so that they are spread over it."""
_VERSION: Final = 9
_MARK: Final = 0x0123_4567_89AB_CD00
"""An offset that stands nowhere else in a request; the number of the partition is added."""
_OFFSET_COMMIT_KEY: Final = 1
_POLL_S: Final = 0.2
_LOADING_S: Final = 0.2

Position = tuple[str, int]
"""A group and a partition."""
Commits = dict[Position, list[tuple[int, int]]]
"""The times (ms since 1970) and offsets of commits, in order."""


class Feeding(threading.Thread):
    """``rate`` records a second, spread evenly over the partitions; knows where these end."""

    def __init__(self, address: str, topic: str, rate: int, partitions: int) -> None:
        super().__init__(name="feeding", daemon=True)
        self.over = threading.Event()
        self.ends: Final = [0] * partitions
        self._topic: Final = topic
        self._rate: Final = rate
        self._producer: Final = Producer({"bootstrap.servers": address, "linger.ms": 5, "log_level": 0})

    def run(self) -> None:
        began, sent = time.monotonic(), 0
        while not self.over.is_set():
            partition = sent % len(self.ends)
            self._producer.produce(self._topic, b"%-100d" % sent, partition=partition, on_delivery=self._delivered)
            sent += 1
            self._producer.poll(0)
            if (early := began + sent / self._rate - time.monotonic()) > 0:
                time.sleep(early)
        self._producer.flush(30)

    def _delivered(self, error: object, message: Any) -> None:
        assert error is None, error
        self.ends[message.partition()] = message.offset() + 1


class _Request:
    """An OffsetCommit without a member, encoded once: only the offsets change."""

    def __init__(self, group: str, topic: str, partitions: int) -> None:
        marks = {Tp(topic, number): OffsetAndMetadata(_MARK + number, None, "") for number in range(partitions)}
        body = offset_commit_request(group, marks)
        frame = b"".join(map(bytes, encode_request(Api.OFFSET_COMMIT, _VERSION, 0, "groups", body)))
        self.frame: Final = bytearray(frame)
        self._places: Final = [frame.index(struct.pack(">q", _MARK + number)) for number in range(partitions)]

    def commit(self, offsets: list[int]) -> bytearray:
        for place, offset in zip(self._places, offsets, strict=True):
            struct.pack_into(">q", self.frame, place, offset)
        return self.frame


class Committing(threading.Thread):
    """Each group commits each second that it has read all that is there, as an assigned consumer does.

    ``address`` is that of the only broker of a cluster.
    """

    def __init__(self, address: str, topic: str, groups: list[str], feeding: Feeding) -> None:
        super().__init__(name="committing", daemon=True)
        self.over = threading.Event()
        self.ready = threading.Event()
        """Each group has committed."""
        self.late_s = 0.0
        """For how long a second's commits have taken more than a second."""
        self._address: Final = address
        self._feeding: Final = feeding
        self._requests: Final = [_Request(group, topic, len(feeding.ends)) for group in groups]

    def run(self) -> None:
        host, _, port = self._address.rpartition(":")
        with contextlib.ExitStack() as stack:
            made = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(_CONNECTIONS)]
            while not self._commit(made, self._requests):
                time.sleep(_LOADING_S)
            self.ready.set()
            due, part = time.monotonic(), 0
            while not self.over.is_set():
                assert self._commit(made, self._requests[part::_SLICES]), "a commit was refused"
                part, due = (part + 1) % _SLICES, due + 1 / _SLICES
                self.late_s = max(self.late_s, time.monotonic() - due)
                time.sleep(max(0, due - time.monotonic()))

    def _commit(self, connections: list[socket.socket], requests: list[_Request]) -> bool:
        """Return whether all of it was committed: coordinators of new groups may have to be loaded first."""
        offsets = list(self._feeding.ends)
        parts = [requests[number :: len(connections)] for number in range(len(connections))]
        for connection, part in zip(connections, parts, strict=True):
            if part:
                connection.sendall(b"".join(one.commit(offsets) for one in part))
        done = [_is_done(connection) for connection, part in zip(connections, parts, strict=True) for _ in part]
        return all(done)


def _is_done(connection: socket.socket) -> bool:
    """Receive a response; return whether it is without errors: two bytes behind each partition's number."""
    (size,) = struct.unpack(">i", _received(connection, 4))
    body = _received(connection, size)
    # correlation id, tags; throttle time; one topic: its name, its partitions of 4 + 2 + 1 bytes each
    name = body[10] - 1
    count = body[11 + name] - 1
    return not any(struct.unpack_from(">h", body, 12 + name + 7 * number + 4)[0] for number in range(count))


def _received(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more, "the broker has closed the connection"
        data += more
    return bytes(data)


def commits_of(address: str, topic: str, groups: set[str]) -> Commits:
    """Return what ``groups`` have committed of ``topic``, with the coordinator's times."""
    found: Commits = defaultdict(list)
    for time_ms, key, value in _group_records(address):
        position = _position(key, topic)
        if position is not None and value is not None and position[0] in groups:
            found[position].append((time_ms, struct.unpack_from(">q", value, 2)[0]))
    return dict(found)


def _group_records(address: str) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Yield the records of the coordinators' own topic with their times, each partition in order."""
    options: dict[str, Any] = {"bootstrap.servers": address, "group.id": "any", "enable.auto.commit": False}
    consumer = Consumer({**options, "enable.partition.eof": True, "auto.offset.reset": "earliest", "log_level": 0})
    try:
        own = "__consumer_offsets"
        left = set(consumer.list_topics(own, timeout=30).topics[own].partitions)
        consumer.assign([TopicPartition(own, number, 0) for number in left])
        until = time.monotonic() + 60
        while left and time.monotonic() < until:
            messages: list[Any] = consumer.consume(10_000, timeout=_POLL_S)
            for message in messages:
                if message.error() is not None:
                    left.discard(message.partition())
                else:
                    yield message.timestamp()[1], message.key(), message.value()
        assert not left, f"partitions {left} of {own} were not read to their end"
    finally:
        consumer.close()


def _position(key: bytes, topic: str) -> Position | None:
    """Parse the key of an OffsetCommit record: version, group, topic, partition."""
    version, size = struct.unpack_from(">hh", key)
    if version > _OFFSET_COMMIT_KEY:
        return None
    group, at = key[4 : 4 + size].decode(), 4 + size
    (size,) = struct.unpack_from(">h", key, at)
    if key[at + 2 : at + 2 + size].decode() != topic:
        return None
    return group, struct.unpack_from(">i", key, at + 2 + size)[0]
