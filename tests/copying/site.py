"""The properties of these tests' source cluster, and unique topic names."""

from __future__ import annotations

import uuid
from typing import Final

SOURCE_PROPERTIES: Final = {
    # Compaction, retention and the detection of a dead broker take no longer than a test.
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "100",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "auto.leader.rebalance.enable": "false",
    "min.insync.replicas": "1",
}


def name(prefix: str) -> str:
    """Return a name that no other test uses."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"
