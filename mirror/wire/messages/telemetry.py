"""GetTelemetrySubscriptions (KIP-714), used only to get a client instance id."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import ClassVar

from mirror.wire.messages.base import FEW_BYTES, Message


@dataclass(slots=True)
class GetTelemetrySubscriptionsRequest(Message):
    """A null id makes the broker assign one."""

    client_instance_id: uuid.UUID | None = None


@dataclass(slots=True)
class GetTelemetrySubscriptionsResponse(Message):
    """The id that the broker assigned to this client."""

    most_bytes: ClassVar[int] = FEW_BYTES

    error_code: int
    client_instance_id: uuid.UUID | None = None
    throttle_time: int = 0
