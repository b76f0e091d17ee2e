"""The messages that negotiate and authenticate a new connection.

Their responses come from a peer that is not authenticated yet, so their lists have a lower limit. For comparison: Kafka
has about a hundred APIs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from mirror.wire.messages.base import FEW_BYTES, Message

_MAX_ITEMS: Final = 1_000


@dataclass(slots=True)
class ApiVersionsRequest(Message):
    """The client's name and version (KIP-35, KIP-511)."""

    client_software_name: str
    client_software_version: str


@dataclass(slots=True)
class ApiVersion(Message):
    """The versions of one API that a broker supports."""

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
    """The APIs that the broker supports. With epoch -1 the finalized features are not valid."""

    most_bytes: ClassVar[int] = FEW_BYTES
    most_items: ClassVar[int] = _MAX_ITEMS

    error_code: int
    api_keys: tuple[ApiVersion, ...] = ()
    throttle_time: int = 0
    finalized_features: tuple[FinalizedFeature, ...] = field(default=())
    finalized_features_epoch: int = -1


@dataclass(slots=True)
class SaslHandshakeRequest(Message):
    """Selects the SASL mechanism (KIP-43)."""

    mechanism: str


@dataclass(slots=True)
class SaslHandshakeResponse(Message):
    """``mechanisms`` are those that the broker has enabled."""

    most_bytes: ClassVar[int] = FEW_BYTES
    most_items: ClassVar[int] = _MAX_ITEMS

    error_code: int
    mechanisms: tuple[str, ...] = ()


@dataclass(slots=True)
class SaslAuthenticateRequest(Message):
    """One message of the mechanism's exchange (KIP-152). It may contain a password, so it is not in the repr."""

    auth_bytes: bytes = field(repr=False)


@dataclass(slots=True)
class SaslAuthenticateResponse(Message):
    """The broker's next message. ``session_lifetime`` is in ms; 0 means unlimited (KIP-368)."""

    most_bytes: ClassVar[int] = FEW_BYTES

    error_code: int
    error_message: str | None
    auth_bytes: bytes = field(repr=False)
    session_lifetime: int = 0
