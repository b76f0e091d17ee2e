"""Keeps the record of a switch on both clusters, the target first. No I/O: topics have that."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol

from mirror.errors import Fenced, FlowError, KafkaError
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


class NoTopic:
    """Stands for the topic on the source of a failover, whose record the target alone has: the source may be dead."""

    def begin(self) -> bool:
        return False

    def read(self) -> SwitchRecord | None:
        return None

    def write(self, record: SwitchRecord) -> None:
        del record


class RecordStore:
    """The record of one operator.

    A rollback has to remove the fence also while the target is away. So it may be stored on the source alone, unless
    the switch may be open already: the target stores OPEN only once the source has that it is ``opening``. That of a
    failover may be on the target alone.
    """

    def __init__(self, target: RecordTopic, source: RecordTopic) -> None:
        self._target: Final = target
        self._source: Final = source
        self._taken: SwitchTaken | None = None
        self._seen: Final[dict[RecordTopic, SwitchRecord | None]] = {}
        """What was read last of each topic: a claim continues it."""
        self.away: KafkaError | None = None
        """Why only one cluster has the last record: the target, which may be enough, or either, of a rollback."""

    def read(self) -> SwitchRecord | None:
        """Return the later record of both clusters; of one, if the other is away. Raises KafkaError, FlowError."""
        try:
            on_target = self._read(self._target)
        except KafkaError as error:
            try:
                on_source = self._read(self._source)
            except KafkaError:
                on_source = None
            if on_source is None:
                raise error from None
            return on_source
        if on_target is not None and on_target.state.is_open:
            return on_target
        try:
            return later_of(on_target, self._read(self._source))
        except KafkaError:
            return on_target

    def _read(self, topic: RecordTopic) -> SwitchRecord | None:
        self._seen[topic] = found = topic.read()
        return found

    # Invariant: An operator stores nothing once a later one has claimed the switch: it fences first, and reads then.
    # Test: tests/switch/test_model.py::test_operators_that_are_killed_anywhere_lose_nothing
    def store(self, record: SwitchRecord) -> None:
        """Store ``record``. Raises SwitchTaken, KafkaError; the source is needed as the record says."""
        if self._taken is not None:
            raise self._taken
        try:
            self._store(record)
        except SwitchTaken as error:
            self._taken = error
            raise

    def _store(self, record: SwitchRecord) -> None:
        try:
            self._write(self._target, record)
        except KafkaError as error:
            if isinstance(error, Fenced) or not record.rollback or not record.needs_source:
                raise
            self._store_on_source(record, error)
            return
        try:
            self._write(self._source, record)
            self.away = None
        except KafkaError as error:
            if isinstance(error, Fenced) or (record.needs_source and not record.rollback):
                raise
            self.away = error

    # Invariant: A rollback goes on without the target only if the switch cannot be open there.
    # Test: tests/switch/test_record.py::test_a_rollback_without_the_target_is_refused_if_the_switch_may_be_open
    def _store_on_source(self, record: SwitchRecord, away: KafkaError) -> None:
        self._source.begin()
        found = self._source.read()
        if found is not None and (found.state.is_open or (found.opening and not found.rollback)):
            raise FlowError(
                f"the target does not answer ({away}), and the switch may be open there: run it again when it answers"
            ) from away
        self._check(self._source, found, record)
        self._write(self._source, record)
        self.away = away

    def _write(self, topic: RecordTopic, record: SwitchRecord) -> None:
        """Store the record, unless a later operator has; a claim that came to nothing may have fenced this one."""
        if topic.begin():
            self._check(topic, topic.read(), record)
        try:
            topic.write(record)
        except Fenced:
            topic.begin()
            self._check(topic, topic.read(), record)
            topic.write(record)

    # Invariant: A claim continues the record that it has read, or fails: what a living operator stores between the
    #   read and the fence is never overwritten.
    # Test: tests/switch/test_record.py::test_a_claim_overwrites_nothing_that_was_stored_behind_its_reading
    def _check(self, topic: RecordTopic, found: SwitchRecord | None, record: SwitchRecord) -> None:
        if found is None:
            return
        changed = topic in self._seen and found != self._seen[topic] and found.operator != record.operator
        if changed or _is_of_later(found, record):
            raise SwitchTaken(f"another operator goes on with the switch: {found.operator}")


def later_of(on_target: SwitchRecord | None, on_source: SwitchRecord | None) -> SwitchRecord | None:
    """Return the record that counts, if both clusters have one.

    The target is written first; only a rollback without it can be later on the source. Claims that did not reach the
    source have left higher generations on the target: the next one has to be higher still.
    """
    if on_target is None or on_source is None:
        return on_target or on_source
    if not _is_of_later(on_source, on_target):
        return on_target
    return replace(on_source, generation=max(on_source.generation, on_target.generation))


# Invariant: A rollback that one cluster has is the end of its attempt, whatever later claims have stored on the other.
# Test: tests/switch/test_record.py::test_a_rollback_on_the_source_alone_counts_behind_claims_on_the_target_alone
def _is_of_later(found: SwitchRecord, record: SwitchRecord) -> bool:
    if found.attempt != record.attempt:
        return found.attempt > record.attempt
    if found.operator == record.operator:
        return found.generation > record.generation
    return found.generation >= record.generation or (bool(found.rollback) and not record.rollback)
