"""Blocking connections to brokers, as simple as can be: what the ceilings and the watcher speak through.

Requests go out at once and answers come in their order; nothing is retried. Any error ends the program that asks.
"""

from __future__ import annotations

import collections
import socket
from collections.abc import Iterable, Sequence
from typing import Any, Final, Self

from mirror.wire.api import Api
from mirror.wire.codec import decode_response, encode_request
from mirror.wire.frames import SIZE
from mirror.wire.messages.base import Message, Segment
from mirror.wire.messages.fetch import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from mirror.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from mirror.wire.messages.session import ApiVersionsRequest
from mirror.wire.versions import BrokerVersions

NAMES_TOPICS: Final = {Api.FETCH: 12, Api.PRODUCE: 12}
"""The last versions that name topics: ids are not needed here."""
LATEST: Final = -1
EARLIEST: Final = -2
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
_CLIENT: Final = "side-by-side"
_WITHIN_S: Final = 60.0
_MOST_SEGMENTS: Final = 512
_BUFFER: Final = 4 << 20


class LinkError(Exception):
    """A broker refused, or closed its connection."""


class Link:
    """One connection to one broker."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), _WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._waiting: collections.deque[tuple[Api, int]] = collections.deque()
        self._sent = 0
        # Brokers before 2.4 do not know version 3, and all know 0.
        self._versions = BrokerVersions({Api.API_VERSIONS.value.key: (0, 0)})
        self._versions = BrokerVersions.of(self.ask(Api.API_VERSIONS, ApiVersionsRequest(_CLIENT, "1")))

    @classmethod
    def to(cls, address: str) -> Self:
        """To the first broker of a bootstrap address."""
        host, _, port = address.partition(",")[0].rpartition(":")
        return cls(host, int(port))

    def ask(self, api: Api, body: Message, newest: int | None = None) -> Any:
        """Send, in version ``newest`` at most, and wait for the answer."""
        self.send(api, body, newest)
        return self.receive()

    def send(self, api: Api, body: Message, newest: int | None = None) -> None:
        version = self._versions.pick(api, NAMES_TOPICS.get(api, newest))
        self._sent += 1
        self._waiting.append((api, version))
        self._send_all(encode_request(api, version, self._sent, _CLIENT, body))

    def receive(self) -> Any:
        """The next answer, in the order of the requests. Raises LinkError where the connection ends."""
        (size,) = SIZE.unpack(self._read(SIZE.size))
        api, version = self._waiting.popleft()
        return decode_response(api, version, self._read(size))

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send_all(self, segments: Sequence[Segment]) -> None:
        left = [memoryview(segment) for segment in segments if len(segment)]
        while left:
            sent = self._socket.sendmsg(left[:_MOST_SEGMENTS])
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if left and sent:
                left[0] = left[0][sent:]

    def _read(self, size: int) -> bytearray:
        frame = bytearray(size)
        view = memoryview(frame)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise LinkError("a broker closed its connection")
            view = view[count:]
        return frame


class Topic:
    """Who leads a topic's partitions. ``leaders``: partition -> (host, port)."""

    def __init__(self, address: str, name: str) -> None:
        self.name: Final = name
        with Link.to(address) as link:
            result = link.ask(Api.METADATA, MetadataRequest((MetadataRequestTopic(name),)))
        (topic,) = result.topics
        check(topic.error_code, name)
        brokers = {one.node_id: (one.host, one.port) for one in result.brokers}
        for part in topic.partitions:
            check(part.error_code, f"{name}-{part.partition_index}")
        self.leaders: Final = {
            part.partition_index: brokers[part.leader_id]
            for part in sorted(topic.partitions, key=lambda part: int(part.partition_index))
        }

    def by_leader(self) -> dict[tuple[str, int], list[int]]:
        found: dict[tuple[str, int], list[int]] = {}
        for partition, leader in self.leaders.items():
            found.setdefault(leader, []).append(partition)
        return found


class Offsets:
    """Asks for a topic's offsets over connections that stay open."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._links = {leader: Link(*leader) for leader in topic.by_leader()}

    def read(self, which: int, isolation: int) -> dict[int, int]:
        """Partition -> its offset: the earliest or latest one, which is the last stable one at READ_COMMITTED."""
        asked = list(self._topic.by_leader().items())
        for leader, partitions in asked:
            self._links[leader].send(Api.LIST_OFFSETS, self._request(partitions, which, isolation))
        return {
            part.partition_index: part.offset
            for leader, _ in asked
            for topic in self._links[leader].receive().topics
            for part in checked(topic.partitions)
        }

    def close(self) -> None:
        for link in self._links.values():
            link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(self, partitions: Iterable[int], which: int, isolation: int) -> ListOffsetsRequest:
        parts = tuple(ListOffsetsPartition(partition, which) for partition in partitions)
        return ListOffsetsRequest(isolation, (ListOffsetsTopic(self._topic.name, parts),))


def checked(partitions: Iterable[Any]) -> list[Any]:
    """An answer's ``partitions``. Raises LinkError for the first with an error."""
    found = list(partitions)
    for part in found:
        check(part.error_code, part)
    return found


def check(code: int, what: object) -> None:
    if code:
        raise LinkError(f"the broker answers with error {code}: {what}")
