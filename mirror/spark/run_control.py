"""The driver's side of run control: which run copies a flow, whether it is to stop, and which epochs are over.

Tasks read the same record; :mod:`mirror.relay.progress.control` says what it holds and where it is stored.
"""

from __future__ import annotations

import secrets
import socket
import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from mirror.errors import KafkaError
from mirror.relay.progress.control import RunControl, control_partition, from_offset

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.client import Admin

_CLUSTER_CALL_TIMEOUT_MS: Final = 10_000
_END_TIMEOUT_MS: Final = 2_000
"""A run that ends was usually asked to by a signal, and has little time left for all of its end."""


def new_run_id() -> str:
    """Return a unique identifier for a run; identifiers sort by time."""
    return f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%fZ')}-{secrets.token_hex(3)}"


def takeover_message(previous: RunControl) -> str:
    """Return the line that a run logs when it claims a flow from a ``previous`` run that is not known to have ended."""
    return f"took over from run {previous.run} on {previous.host}, which had not said that it ended"


def _unix_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


class RunControlClient:
    """Reads and writes the control record of one flow on its target. Thread-safe, as Admin is.

    One change at a time reads the record and commits it again, so that a heartbeat undoes no other change of this
    client. One of another process may still overwrite a change; so commands are read again, and repeated.
    """

    def __init__(self, admin: Admin, flow: str, run: str = "") -> None:
        """``admin`` is the target's. Without a ``run``, the record may only be read, and its run be stopped."""
        self._admin: Final = admin
        self._flow: Final = flow
        self.run: Final = run
        self._changing: Final = threading.Lock()

    def read(self, timeout_ms: int = _CLUSTER_CALL_TIMEOUT_MS) -> RunControl | None:
        """Return the flow's control record, or None if there is none. Raises KafkaError."""
        group, tp = control_partition(self._flow)
        return from_offset(self._admin.group_offsets(group, [tp], timeout_ms=timeout_ms).get(tp))

    def claim(self) -> RunControl | None:
        """Make this run the one that copies the flow. Return the run that it takes over from, unless that has ended.

        Raises KafkaError.
        """
        previous = self.read()
        if previous is not None and previous.run == self.run:
            return None
        now_ms = _unix_ms()
        self._commit(RunControl(run=self.run, host=socket.gethostname(), since_ms=now_ms, seen_ms=now_ms))
        return previous if previous is not None and previous.other_run_active(self.run) else None

    def claim_or_warn(self, warn: Callable[[str], None]) -> bool:
        """Claim the flow and return whether that succeeded; ``warn`` gets a line about a takeover or a failure."""
        try:
            previous = self.claim()
        except KafkaError as error:
            warn(f"another run of it could not be asked to end: {error}")
            return False
        if previous is not None:
            warn(takeover_message(previous))
        return True

    def request_new_plan(self, epoch: int) -> None:
        """End ``epoch`` of this run early, so that the next one is planned now. Raises KafkaError."""
        with self._changing:
            if (control := self._own()) is not None:
                self._commit(replace(control, epoch=epoch + 1))

    def announce_additions(self, count: int) -> bool:
        """Have the running tasks read what was added to their epoch for the ``count``-th time in this run.

        Return whether the record had that count already: another process that changed the record meanwhile may have
        overwritten it, so it is announced until it is read. Raises KafkaError.
        """
        with self._changing:
            control = self._own()
            if control is None or control.added >= count:
                return control is not None
            self._commit(replace(control, added=count))
            return False

    def renew(self) -> None:
        """Commit this run's record again with the current time, also so that it does not expire. Raises KafkaError."""
        with self._changing:
            if (control := self._own()) is not None:
                self.renew_from(control)

    def renew_from(self, control: RunControl) -> None:
        """Renew ``control``, which is this run's record and was just read. Raises KafkaError."""
        if not control.ended:
            self._commit(replace(control, seen_ms=_unix_ms()))

    def mark_ended(self, control: RunControl) -> None:
        """Record that the run of ``control`` has ended, because it died. Raises KafkaError."""
        if self.read() == control.stopped():
            self._commit(control.stopped(ended=True))

    def stop(self) -> RunControl | None:
        """Ask the run that copies this flow to end in order, and return its record; None if no run copies it.

        Raises KafkaError.
        """
        with self._changing:
            control = self.read()
            if control is None or control.ended or (self.run and control.run != self.run):
                return None
            self._commit(control.stopped())
            return control

    def end(self) -> None:
        """Record that this run has ended. Raises KafkaError."""
        if (control := self._own(_END_TIMEOUT_MS)) is not None:
            self._commit(control.stopped(ended=True), _END_TIMEOUT_MS)

    def _own(self, timeout_ms: int = _CLUSTER_CALL_TIMEOUT_MS) -> RunControl | None:
        control = self.read(timeout_ms)
        return control if control is not None and control.run == self.run else None

    def _commit(self, control: RunControl, timeout_ms: int = _CLUSTER_CALL_TIMEOUT_MS) -> None:
        group, tp = control_partition(self._flow)
        self._admin.commit_group_offsets(group, {tp: control.to_offset()}, timeout_ms=timeout_ms)
