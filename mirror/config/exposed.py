"""Credentials of a valid configuration that others can read: in their files, or on a network without encryption."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from mirror.cluster.auth.oauth_settings import is_loopback
from mirror.cluster.settings import ClusterSettings
from mirror.local_users import all_may_read

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.config.models import MirrorConfig

_SENT: Final = {"PLAIN": "password", "OAUTHBEARER": "token"}
"""What a mechanism sends as it is. SCRAM proves that the client knows the password, without sending it."""


def unencrypted_credentials(config: MirrorConfig, clusters: Iterable[str]) -> list[str]:
    """Return a line for each of these clusters to which a password or token is sent over a network without TLS."""
    lines = []
    for name in sorted(set(clusters)):
        settings = ClusterSettings.parse(config.clusters[name].client_options())
        sasl = None if settings.security.uses_tls else settings.security.sasl
        hosts = sorted({host for host, _ in settings.bootstrap if not is_loopback(host)})
        if hosts and sasl is not None and sasl.mechanism in _SENT:
            lines.append(
                f"cluster {name}: the {_SENT[sasl.mechanism]} of sasl.mechanism {sasl.mechanism} goes to"
                f" {', '.join(hosts)} unencrypted: use security.protocol SASL_SSL"
            )
    return lines


def readable_secrets(config: MirrorConfig) -> list[str]:
    """Return a line that names the files with secrets that every user of this host can read, if there are any."""
    files = sorted({str(path) for path in config.secret_files if all_may_read(path)})
    if not files:
        return []
    return [f"every user of this host can read the secrets in {', '.join(files)}: chmod o= {shlex.join(files)}"]
