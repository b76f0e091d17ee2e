"""A request that was sent and not answered yet."""

from __future__ import annotations

from dataclasses import dataclass

from mirror.cluster.requests import Request
from mirror.errors import KafkaError
from mirror.wire.api import Api


@dataclass(slots=True, eq=False)
class InFlight:
    """``request`` None is a request of the session itself; ``abandoned``: its caller has been told already."""

    correlation_id: int
    api: Api
    version: int
    request: Request | None
    caller_deadline: int
    connection_deadline: int
    abandoned: bool = False

    def lost(self, error: KafkaError, now: int) -> None:
        """Nobody will answer it any more."""
        if self.request is not None and self.abandoned:
            self.request.settled(now)
        elif self.request is not None:
            self.request.on_failure(error, now)
