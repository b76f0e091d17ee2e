"""The states of connectors and tasks: the records of Kafka Connect's status topic (``KafkaStatusBackingStore``). Pure.

The topic is compacted. A worker writes a record for each change of a state, and a tombstone for what was deleted; one
that was killed leaves its last records.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from mirror.relay.progress import stored_json as stored
from mirror.wire.integers import INT32_MAX

_CONNECTOR: Final = "status-connector-"
_TASK: Final = "status-task-"


class State(enum.StrEnum):
    """The states that matter here (``AbstractStatus.State``); there are others."""

    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    """It was stopped by a user (KIP-875), and has no tasks. A paused connector keeps its tasks."""


class StatusKey(NamedTuple):
    """Whose state a record holds."""

    connector: str
    task: int | None = None
    """None: the connector's own."""

    @classmethod
    def parse(cls, data: bytes | None) -> StatusKey | None:
        """Parse a record's key; None for anything else, such as that of a topic that a connector uses."""
        try:
            text = (data or b"").decode()
        except UnicodeDecodeError:
            return None
        if text.startswith(_CONNECTOR):
            return cls(text.removeprefix(_CONNECTOR))
        if not text.startswith(_TASK):
            return None
        connector, _, number = text.removeprefix(_TASK).rpartition("-")
        return cls(connector, int(number)) if connector and number.isascii() and number.isdigit() else None

    def to_bytes(self) -> bytes:
        """Return the record's key."""
        own = self.task is None
        return (f"{_CONNECTOR}{self.connector}" if own else f"{_TASK}{self.connector}-{self.task}").encode()


class Status(NamedTuple):
    """The state of a connector or task."""

    state: str
    """One of Kafka's ``AbstractStatus.State``, as a name."""
    worker: str
    """The worker's id: the host and port of its REST interface."""
    generation: int
    """Of the workers' group, when the record was written."""

    @classmethod
    def parse(cls, data: bytes | None) -> Status | None:
        """Parse a record's value; None for a tombstone and for anything else."""
        fields = stored.parse_object(data)
        state, worker = stored.text(fields.get("state")), stored.text(fields.get("worker_id"))
        return cls(state, worker, stored.number(fields.get("generation"), INT32_MAX) or 0) if state else None

    def __str__(self) -> str:
        return f"{self.state} on worker {self.worker} (generation {self.generation})"
