"""Runs a search for an exact position to its end, in the calling thread."""

from __future__ import annotations

import time
from typing import Any

from mirror.relay.progress.position import FoundPosition, OpenSearch, PositionQuery, PositionSearch


def find(search: PositionSearch[Any], query: PositionQuery, timeout_ms: int = 20_000) -> FoundPosition:
    """As an attempt waits for it; raises what it raises."""
    return find_on(search.begin(query), timeout_ms)


def find_on(run: OpenSearch, timeout_ms: int = 20_000) -> FoundPosition:
    """Continue a search."""
    until = time.monotonic() + timeout_ms / 1_000
    while (found := run.advance()) is None:
        if time.monotonic() >= until:
            raise run.timeout_error()
    return found
