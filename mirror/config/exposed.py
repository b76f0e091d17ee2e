"""Credentials that a configuration, right as it is, sends over a network for everybody on the way to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.cluster.auth.security import is_loopback
from mirror.cluster.settings import ClusterSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.config.models import MirrorConfig

_SENT: Final = {"PLAIN": "password", "OAUTHBEARER": "token"}
"""What a mechanism sends as it is; SCRAM proves to know a password and does not send it."""


def unencrypted_credentials(config: MirrorConfig, clusters: Iterable[str]) -> list[str]:
    """A line for each of these clusters whose brokers are sent a password or token without TLS, over a network."""
    lines = []
    for name in sorted(set(clusters)):
        settings = ClusterSettings.parse(config.clusters[name].client_options())
        sasl = None if settings.security.uses_tls else settings.security.sasl
        hosts = sorted({host for host, _ in settings.bootstrap if not is_loopback(host)})
        if hosts and sasl is not None and sasl.mechanism in _SENT:
            lines.append(
                f"cluster {name}: the {_SENT[sasl.mechanism]} of sasl.mechanism {sasl.mechanism} goes to"
                f" {', '.join(hosts)} in the clear: use security.protocol SASL_SSL"
            )
    return lines
