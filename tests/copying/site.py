"""What the clusters of these tests are like."""

from __future__ import annotations

import uuid
from typing import Final

SOURCE_PROPERTIES: Final = {
    # Compaction, retention and the end of a dead broker within a test's time.
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "100",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "auto.leader.rebalance.enable": "false",
    "min.insync.replicas": "1",
}


def name(of: str) -> str:
    """One that no other test uses."""
    return f"{of}-{uuid.uuid4().hex[:12]}"
