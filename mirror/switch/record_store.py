"""Keeps the record of a switch on both clusters, the target first. No I/O: topics have that."""

from __future__ import annotations

from typing import Final, Protocol

from mirror.errors import FlowError, KafkaError
from mirror.switch.record import SwitchRecord


class SwitchTaken(FlowError):
    """Another operator goes on with the switch."""


class RecordTopic(Protocol):
    """One compacted topic with one record. Its calls raise KafkaError; Fenced where another one has begun since."""

    def begin(self) -> bool:
        """Fence others, unless this one has and has not failed since; return whether it has now."""

    def read(self) -> SwitchRecord | None:
        """Return the record. Raises FlowError if it is not understood."""

    def write(self, record: SwitchRecord) -> None:
        """Store the record."""


class RecordStore:
    """The record of one operator."""

    def __init__(self, target: RecordTopic, source: RecordTopic) -> None:
        self._target: Final = target
        self._source: Final = source
        self.source_error: KafkaError | None = None
        """Why the source has an earlier record than the target, behind OPEN."""

    def read(self) -> SwitchRecord | None:
        """Return the record of the target, which is never behind that of the source. Raises KafkaError, FlowError."""
        return self._target.read()

    # Invariant: An operator stores nothing once a later one has claimed the switch: it fences first, and reads then.
    # Test: tests/switch/test_model.py::test_operators_that_are_killed_anywhere_lose_nothing
    def store(self, record: SwitchRecord) -> None:
        """Store ``record``. Raises SwitchTaken, KafkaError; the source is needed until the switch is open."""
        if self._target.begin():
            found = self._target.read()
            if found is not None and _is_of_later(found, record):
                raise SwitchTaken(f"another operator goes on with the switch: {found.operator}")
        self._target.write(record)
        try:
            self._source.begin()
            self._source.write(record)
            self.source_error = None
        except KafkaError as error:
            if not record.state.is_open and not record.rollback:
                raise
            self.source_error = error


def _is_of_later(found: SwitchRecord, record: SwitchRecord) -> bool:
    return (found.attempt, found.generation) > (record.attempt, record.generation) or (
        found.generation == record.generation and found.operator != record.operator
    )
