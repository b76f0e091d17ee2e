"""What a connection says before anything else.

The other side is not known yet when its answers are read: their lists are bounded. Kafka has about a hundred APIs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from mirror.wire.messages.base import Message

_MOST_ITEMS: Final = 1_000


@dataclass(slots=True)
class ApiVersionsRequest(Message):
    """KIP-35, KIP-511."""

    client_software_name: str
    client_software_version: str


@dataclass(slots=True)
class ApiVersion(Message):
    """The versions of one API that a broker speaks."""

    api_key: int
    min_version: int
    max_version: int


@dataclass(slots=True)
class FinalizedFeature(Message):
    """A cluster-wide feature level (KIP-584), such as ``transaction.version``."""

    name: str
    max_version_level: int
    min_version_level: int


@dataclass(slots=True)
class ApiVersionsResponse(Message):
    """What the broker speaks; without an epoch (-1) its finalized features say nothing."""

    most_items: ClassVar[int] = _MOST_ITEMS

    error_code: int
    api_keys: tuple[ApiVersion, ...] = ()
    throttle_time: int = 0
    finalized_features: tuple[FinalizedFeature, ...] = field(default=())
    finalized_features_epoch: int = -1


@dataclass(slots=True)
class SaslHandshakeRequest(Message):
    """Which mechanism will be used (KIP-43)."""

    mechanism: str


@dataclass(slots=True)
class SaslHandshakeResponse(Message):
    """Whether the broker has it, and which ones it has."""

    most_items: ClassVar[int] = _MOST_ITEMS

    error_code: int
    mechanisms: tuple[str, ...] = ()


@dataclass(slots=True)
class SaslAuthenticateRequest(Message):
    """One message of the mechanism's exchange (KIP-152). It may hold a password: never shown."""

    auth_bytes: bytes = field(repr=False)


@dataclass(slots=True)
class SaslAuthenticateResponse(Message):
    """The broker's answer to it; ``session_lifetime`` in ms, 0 for ever (KIP-368)."""

    error_code: int
    error_message: str | None
    auth_bytes: bytes = field(repr=False)
    session_lifetime: int = 0
