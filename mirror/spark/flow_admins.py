"""The admin clients of both clusters of a flow."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirror.client import Admin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.config.models import FlowConfig, MirrorConfig


@contextmanager
def open_admins(config: MirrorConfig, flow: FlowConfig) -> Iterator[tuple[Admin, Admin]]:
    """Yield clients of the source and of the target of ``flow``, and close both. Raises ConfigError."""
    with (
        Admin(config.clusters[flow.source].client_options()) as source,
        Admin(config.clusters[flow.target].client_options()) as target,
    ):
        yield source, target
