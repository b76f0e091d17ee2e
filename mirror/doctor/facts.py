"""What was observed: of an address, of a cluster, of this host. Plain values, which the checks decide from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mirror.client import ClientQuota
from mirror.errors import MirrorError
from mirror.wire.versions import BrokerVersions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """What was read, or the ``error`` that kept it from being read: ``value`` is empty or None then."""

    value: T
    error: MirrorError | None = None


@dataclass(frozen=True, slots=True)
class Certificate:
    """The certificate of a server, as it is presented to this host and accepted by it."""

    protocol: str
    """``TLSv1.3``."""
    expires_s: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """An attempt to reach a server: connecting, TLS, login, and a request."""

    error: MirrorError | None = None
    is_here: bool = False
    """Whether its address is one of this host's. Of bootstrap servers."""
    round_trip_ms: float = 0.0
    """Of a request on a connection that stands."""
    versions: BrokerVersions | None = None
    certificate: Certificate | None = None


@dataclass(frozen=True, slots=True)
class Clock:
    """How far the clock of a cluster's controller is ahead of this host's, in ms, and by how much that may be wrong."""

    ahead_ms: float
    uncertainty_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What a cluster shows. Empty where its bootstrap servers do not answer."""

    name: str
    bootstrap: Mapping[str, Contact]
    """By address."""
    brokers: Mapping[str, Contact] = field(default_factory=dict)
    """By ``broker ID at HOST:PORT``: at the addresses that they advertise."""
    settings: Reading[Mapping[int, Mapping[str, str | None]]] = field(default_factory=lambda: Reading({}))
    """Of each broker that has answered, by its id, those that are compared, by key."""
    clock: Reading[Clock | None] = field(default_factory=lambda: Reading(None))
    quotas: Reading[tuple[ClientQuota, ...]] = field(default_factory=lambda: Reading(()))
    own_expires_s: Reading[float | None] = field(default_factory=lambda: Reading(None))
    """When the certificate of this client expires, in seconds since 1970; None: it has none."""

    @property
    def broker_settings(self) -> Mapping[str, str | None]:
        """The settings of one of the brokers: those that differ are a finding of their own."""
        return next(iter(self.settings.value.values()), {})

    @property
    def answers(self) -> bool:
        """Whether one of its bootstrap servers answers."""
        return any(one.error is None for one in self.bootstrap.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What this host offers."""

    java: str = ""
    """Its release and path; empty if there is no usable one."""
    java_error: str = ""
    spark: str = ""
    """The release of PySpark; empty if it is not installed."""
    release_warning: str = ""
    """About the release of Spark with this Python."""
    user_id: int = 0
    has_name: bool = True
    """Whether the user has a passwd entry."""
    host_name: str = "localhost"
    host_name_error: str = ""
    temporary_error: str = ""
    cores: int = 1
    core_limit: float | None = None
    """Of the container."""
    memory_bytes: int = 0
    memory_limit: int | None = None
    """Of the container, in bytes."""
    open_files: tuple[int, int] = (-1, -1)
    """The soft and the hard limit; -1: none."""
    disks: Mapping[str, int | str] = field(default_factory=dict)
    """The free bytes, or why it cannot be written, by a folder and what it is for."""
