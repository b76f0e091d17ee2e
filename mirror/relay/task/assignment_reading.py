"""Reads the assignments of a task while it copies, whenever the control record announces a newer version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from mirror.client import Admin, TopicPartition
from mirror.relay.model.assignments import Change, Entry, OwnAssignments
from mirror.relay.progress.assignment_entries import entries_of
from mirror.relay.progress.control_record import Command, control_partition
from mirror.relay.task.background_read import BackgroundRead

LoadEntries = Callable[[], Mapping[TopicPartition, Entry]]
"""Reads the entries of the job. It waits for the target. Raises MirrorError."""


def load_entries(target: Admin, flow: str, run: str, job: int) -> Mapping[TopicPartition, Entry]:
    """Read the entries of ``job`` of ``run`` from the target. Raises KafkaError."""
    return entries_of(target.group_offsets(control_partition(flow)[0]), flow, run, job)


class AssignmentReader:
    """The assignments of one task, for its thread.

    A read that fails is repeated with the next command, without backoff: the control record is read each second anyway.
    """

    def __init__(
        self,
        own: OwnAssignments,
        load: LoadEntries,
        submit: Callable[[LoadEntries], Future[Any]],
        wake: Callable[[], None],
    ) -> None:
        """``submit`` runs a call in a thread that may wait; ``wake`` is called once it is done."""
        self._own: Final = own
        self._load: Final = load
        self._announced = self._read_version = -1
        failed = "the assignments of this task cannot be read; retrying"
        self._reading: Final = BackgroundRead[Mapping[TopicPartition, Entry]](submit, wake, failed)

    @property
    def applied(self) -> int:
        """The newest version that was applied; -1: none, and the task holds nothing."""
        return self._own.applied

    def follow(self, command: Command) -> None:
        """Have :meth:`take` read what ``command`` has announced."""
        self._announced = command.version

    def take(self) -> Change | None:
        """Return what has changed, once. Its first change has what the task begins with of its row."""
        entries = self._reading.take()
        change = None if entries is None else self._own.apply(entries, self._read_version)
        if self._reading.in_progress:
            return None
        announced, self._announced = self._announced, -1
        if announced <= self._own.applied:
            return change or None
        if announced == 0:
            return self._own.apply({}, announced)  # nothing has changed since the job began
        self._read_version = announced
        self._reading.begin(self._load)
        return change or None
