"""What a connection says before anything else."""

from __future__ import annotations

from dataclasses import dataclass, field

from mirror.wire.messages.base import Message


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
    """What the broker speaks."""

    error_code: int
    api_keys: tuple[ApiVersion, ...] = ()
    throttle_time: int = 0
    finalized_features: tuple[FinalizedFeature, ...] = field(default=())
