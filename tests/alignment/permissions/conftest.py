"""The clusters that obey ACLs."""

from __future__ import annotations

from tests.alignment.permissions.guarded import one, other

__all__ = ["one", "other"]
