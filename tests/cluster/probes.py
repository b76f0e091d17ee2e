"""Small things that the cluster tests share: a request that writes down how it ended, and a broker's end by hand."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from mirror.cluster.connection.session import BrokerSession
from mirror.cluster.requests import Lane, Request
from mirror.cluster.settings import ClusterSettings
from mirror.errors import KafkaError
from mirror.wire.api import Api
from mirror.wire.messages.base import Message
from mirror.wire.messages.metadata import MetadataRequest
from mirror.wire.messages.session import ApiVersion, ApiVersionsResponse
from tests.fakes.server_codec import decode_request, encode_response


def settings(**options: object) -> ClusterSettings:
    return ClusterSettings.parse({"bootstrap.servers": "broker-1.fake:9092", **options})


@dataclass(slots=True)
class Probe:
    """A request, and what became of it. ``order`` may be shared by several, to see which was answered first."""

    name: str = "probe"
    api: Api = Api.METADATA
    body: Message = field(default_factory=lambda: MetadataRequest(()))
    timeout_ms: int = 30_000
    order: list[str] = field(default_factory=list)
    responses: list[Any] = field(default_factory=list)
    failures: list[KafkaError] = field(default_factory=list)
    request: Request = field(init=False)

    def __post_init__(self) -> None:
        self.request = Request(
            api=self.api,
            body=self.body,
            node=1,
            lane=Lane.CONTROL,
            timeout_ms=self.timeout_ms,
            on_response=self._answered,
            on_failure=self._failed,
        )

    def _answered(self, response: Any, _now: int) -> None:
        self.order.append(self.name)
        self.responses.append(response)

    def _failed(self, error: KafkaError, _now: int) -> None:
        self.order.append(self.name)
        self.failures.append(error)

    @property
    def completions(self) -> int:
        """How often its caller heard anything; never more than once."""
        return len(self.responses) + len(self.failures)


class ByHand:
    """A session, and its broker played by the test."""

    def __init__(self, request_timeout_ms: int = 30_000) -> None:
        self.session = BrokerSession("broker 1 at broker-1.fake:9092", "me", request_timeout_ms)
        self._seen = bytearray()

    def read(self) -> list[tuple[Api, int, int, Message]]:
        """The requests sent since the last look, as (API, version, correlation id, body)."""
        while self.session.outgoing:
            self._seen += self.session.outgoing.popleft()
        found = []
        while self._seen:
            (size,) = struct.unpack_from(">i", self._seen)
            found.append(decode_request(bytes(self._seen[4 : 4 + size])))
            del self._seen[: 4 + size]
        return found

    def feed(self, data: bytes, now: int) -> None:
        while data:
            buffer = self.session.buffer()
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            self.session.received(count, now)

    def answer(self, to: tuple[Api, int, int, Message], body: Message, now: int) -> None:
        api, version, correlation_id, _ = to
        self.feed(encode_response(api, version, correlation_id, body), now)

    def negotiate(self, now: int = 0, ranges: dict[Api, tuple[int, int]] | None = None) -> None:
        """Connect, and answer the version request."""
        self.session.start(now)
        (asked,) = self.read()
        self.send_versions(asked, now, ranges)

    def send_versions(
        self, asked: tuple[Api, int, int, Message], now: int, ranges: dict[Api, tuple[int, int]] | None = None
    ) -> None:
        """The answer to the version request; without ``ranges`` the broker speaks all that we do."""
        known = {api: (0, api.value.high) for api in Api} if ranges is None else ranges
        keys = tuple(ApiVersion(api.value.key, low, high) for api, (low, high) in known.items())
        self.answer(asked, ApiVersionsResponse(0, keys), now)
