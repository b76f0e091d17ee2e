"""Observes one cluster: each address by itself, TLS, settings. Each step has a deadline."""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mirror.client import Admin, Broker, ConfigResource
from mirror.cluster.settings import Address, ClusterSettings, address_text
from mirror.doctor.facts import Certificate, Clock, ClusterFacts, Contact, Reading
from mirror.errors import FlowError, KafkaError, MirrorError
from mirror.runtime.network.java_stores import is_java_store, read_key_store
from mirror.runtime.network.tls_contexts import make_context
from mirror.spark.concurrent_calls import call_concurrently

if TYPE_CHECKING:
    from mirror.cluster.auth.security import TlsSettings
    from mirror.observation import Side

_REQUESTS: Final = 3
"""Of as many requests, the fastest is the round trip: the others waited for something else."""
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def observe(side: Side, options: Mapping[str, object], keys: Collection[str], step_ms: int) -> ClusterFacts:
    """Return what the cluster of ``side`` shows to a client with ``options``. A step takes ``step_ms`` at most.

    ``keys`` are the settings that are read of each broker.
    """
    settings = ClusterSettings.parse(options)
    found = _each({address_text(one): partial(_bootstrap, options, one, step_ms) for one in settings.bootstrap})
    facts = ClusterFacts(name=side.name, bootstrap=found)
    if not facts.answers:
        return facts
    try:
        brokers = side.cluster.brokers
    except (KafkaError, FlowError):
        return facts  # one of the servers has answered, and does not any more
    labels = {f"broker {one.node_id} at {address_text((one.host, one.port))}": one for one in brokers}
    calls = {label: partial(_broker, side.admin, one, settings, step_ms) for label, one in labels.items()}
    reached = _each(calls)
    tls = settings.security.tls if settings.security.uses_tls else None
    settings_found, clock, quotas, own_expires_s = _at_once(
        {
            "settings": (lambda: _settings(side.admin, [one.node_id for one in brokers], keys, step_ms), {}),
            "clock": (lambda: _clock(side.admin, step_ms), None),
            "quotas": (lambda: side.admin.client_quotas(timeout_ms=step_ms), ()),
            "certificate": (lambda: None if tls is None else own_expiry(tls), None),
        }
    )
    return ClusterFacts(
        name=side.name,
        bootstrap=found,
        brokers=reached,
        settings=settings_found,
        clock=clock,
        quotas=quotas,
        own_expires_s=own_expires_s,
    )


def _bootstrap(options: Mapping[str, object], address: Address, step_ms: int) -> Contact:
    with Admin({**options, "bootstrap.servers": address_text(address)}) as admin:
        admin.describe_cluster(timeout_ms=step_ms)
    return Contact(is_here=is_here(address))


def is_here(address: Address) -> bool:
    """Whether the host of ``address`` is this one: it has one of its addresses, to which a socket can be bound."""
    with suppress(OSError):
        for family, kind, protocol, _, found in socket.getaddrinfo(*address, type=socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.bind((found[0], 0))
                return True
    return False


def _broker(admin: Admin, broker: Broker, settings: ClusterSettings, step_ms: int) -> Contact:
    node = broker.node_id
    versions = admin.describe_versions([node], timeout_ms=step_ms)[node]
    times = []
    for _ in range(_REQUESTS):
        began_s = time.perf_counter()
        admin.describe_versions([node], timeout_ms=max(1, step_ms // _REQUESTS))
        times.append((time.perf_counter() - began_s) * 1000)
    certificate = None
    if settings.security.uses_tls:
        certificate = _certificate(settings.security.tls, (broker.host, broker.port), step_ms)
    return Contact(round_trip_ms=min(times), versions=versions, certificate=certificate)


def _settings(
    admin: Admin, brokers: Sequence[int], keys: Collection[str], step_ms: int
) -> dict[int, dict[str, str | None]]:
    """Return these settings of the brokers that answer. Raises the error of one if none does."""
    resources = {ConfigResource.broker(one): one for one in brokers}
    found = admin.describe_configs(resources, keys=keys, partial=True, timeout_ms=step_ms)
    if not found and found.failed:
        raise next(iter(found.failed.values()))
    return {resources[one]: {key: entry.value for key, entry in entries.items()} for one, entries in found.items()}


def _clock(admin: Admin, step_ms: int) -> Clock:
    """Compare the controller's clock with this host's: it was read at some time between a request and its answer."""
    began_s, began_ms = time.perf_counter(), time.time() * 1000
    controller_ms = admin.controller_time(timeout_ms=step_ms)
    took_ms = (time.perf_counter() - began_s) * 1000
    return Clock(controller_ms - (began_ms + took_ms / 2), took_ms / 2)


def _certificate(tls: TlsSettings, address: Address, step_ms: int) -> Certificate | None:
    """Return the certificate that a server presents, which the client has accepted before."""
    try:
        with (
            socket.create_connection(address, step_ms / 1000) as plain,
            make_context(tls).wrap_socket(plain, server_hostname=address[0]) as connection,
        ):
            found = connection.getpeercert() or {}
            expires_s = ssl.cert_time_to_seconds(str(found.get("notAfter", "")))
            return Certificate(connection.version() or "", expires_s)
    except (OSError, ValueError):
        return None


def own_expiry(tls: TlsSettings) -> float | None:
    """Return when the client's own certificate expires, in seconds since 1970; None if it has none.

    Raises what ``cryptography`` raises: it refuses some certificates that OpenSSL accepts.
    """
    from cryptography.x509 import load_pem_x509_certificate

    data = tls.keystore_chain.encode()
    if tls.keystore_location:
        data = Path(tls.keystore_location).read_bytes()
        if is_java_store(data):
            data = read_key_store(data, tls.keystore_password, tls.key_password).encode()
    first = _CERTIFICATE.search(data)
    return None if first is None else load_pem_x509_certificate(first[0]).not_valid_after_utc.timestamp()


def _each(calls: Mapping[str, Callable[[], Contact]]) -> dict[str, Contact]:
    """Make all contacts at once: one that is not answered delays no other one."""
    found = call_concurrently("address", calls)
    return {name: Contact(error=one) if isinstance(one, MirrorError) else one for name, one in found.items()}


def _at_once(calls: Mapping[str, tuple[Callable[[], Any], Any]]) -> list[Reading[Any]]:
    """Return what each call returns; ``calls`` has what stands for it where it raises, too."""
    found = call_concurrently("reading the", {name: call for name, (call, _) in calls.items()})
    return [
        Reading(calls[name][1], one) if isinstance(one, MirrorError) else Reading(one) for name, one in found.items()
    ]
