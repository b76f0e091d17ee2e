"""A request that is sent as several, because the broker's version has one key in each. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mirror.cluster.requests import Request
from mirror.errors import KafkaError, KafkaTimeout
from mirror.wire import older
from mirror.wire.messages.base import Message


class RequestParts:
    """Completes one request by the responses to several, which are sent over one connection.

    The first failure is that of the whole. It is settled once no response to any part is outstanding.
    """

    def __init__(self, whole: Request, bodies: Sequence[Message]) -> None:
        self._whole = whole
        self._bodies = bodies
        self._responses: list[Any] = [None] * len(bodies)
        self._open = len(bodies)
        self._failure: KafkaError | None = None

    def requests(self) -> list[Request]:
        """Return the requests to send, in order."""
        return [self._part(number, body) for number, body in enumerate(self._bodies)]

    def _part(self, number: int, body: Message) -> Request:
        def on_response(response: Any, now: int) -> None:
            self._responses[number] = response
            self._end(now)

        def on_failure(error: KafkaError, now: int) -> None:
            if self._failure is None:
                self._failure = error
                self._whole.on_failure(error, now)
            if not isinstance(error, KafkaTimeout):
                self._end(now)

        return replace(
            self._whole, body=body, on_response=on_response, on_failure=on_failure, on_settled=self._end, recognize=None
        )

    def _end(self, now: int) -> None:
        self._open -= 1
        if self._open:
            return
        if isinstance(self._failure, KafkaTimeout):
            self._whole.settled(now)
        elif self._failure is None:
            self._whole.on_response(older.join(self._bodies, self._responses), now)
