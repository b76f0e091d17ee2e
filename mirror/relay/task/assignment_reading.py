"""Reads the assignments of a task while it copies, whenever the control record announces a newer version."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from mirror.client import Admin, TopicPartition
from mirror.relay.model.assignments import Change, Entry, OwnAssignments
from mirror.relay.progress.assignment_entries import entries_of
from mirror.relay.progress.control import Command, control_partition

_log: Final = logging.getLogger(__name__)

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
        self._submit: Final = submit
        self._wake: Final = wake
        self._announced: int | None = None
        """The version of the last command; None if it was dealt with."""
        self._reading: tuple[int, Future[Mapping[TopicPartition, Entry]]] | None = None
        self._reported = ""

    @property
    def applied(self) -> int:
        """The newest version that was applied; -1: none, and the task holds nothing."""
        return self._own.applied

    def follow(self, command: Command) -> None:
        """Have :meth:`take` read what ``command`` has announced."""
        self._announced = command.version

    def take(self) -> Change | None:
        """Return what has changed, once. Its first change has what the task begins with of its row."""
        change: Change | None = None
        if self._reading is not None:
            version, reading = self._reading
            if not reading.done():
                return None
            self._reading = None
            change = self._apply_read(version, reading)
        announced, self._announced = self._announced, None
        if announced is not None and announced > self._own.applied:
            if announced == 0:
                change = self._own.apply({}, announced)  # nothing has changed since the job began
            else:
                self._read(announced)
        return change or None

    def _read(self, version: int) -> None:
        reading = self._submit(self._load)
        self._reading = version, reading
        reading.add_done_callback(lambda _: self._wake())

    def _apply_read(self, version: int, reading: Future[Mapping[TopicPartition, Entry]]) -> Change | None:
        if (error := reading.exception()) is not None:
            if self._reported != str(error):  # it is read each second
                _log.warning("the assignments of this task cannot be read; retrying: %s", error)
            self._reported = str(error)
            return None
        self._reported = ""
        return self._own.apply(reading.result(), version)
