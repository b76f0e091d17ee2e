"""GetTelemetrySubscriptions: here only for the client instance id (KIP-714)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from mirror.wire.messages.base import Message


@dataclass(slots=True)
class GetTelemetrySubscriptionsRequest(Message):
    """A null id asks the broker for one."""

    client_instance_id: uuid.UUID | None = None


@dataclass(slots=True)
class GetTelemetrySubscriptionsResponse(Message):
    """The id the broker gave this client."""

    error_code: int
    client_instance_id: uuid.UUID | None = None
    throttle_time: int = 0
