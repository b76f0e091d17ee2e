"""The driver's side of run control: which run copies a flow, whether it is to stop, and which job runs.

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
from mirror.relay.progress.control import Attempts, RunControl, control_partition, from_offset, newest_attempts
from mirror.spark.control_decision import Decision, decide

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


class RunRecord:
    """What a run wants its control record to say: one for all clients of the run in its process. Thread-safe."""

    def __init__(self, run: str) -> None:
        now_ms = _unix_ms()
        self.run: Final = run
        self.claimed = False
        """Whether the flow's record was this run's at any time."""
        self.writing: Final = threading.Lock()
        """Who holds it may read the record and commit it again."""
        self._changing: Final = threading.Lock()
        self._wanted = RunControl(run=run, host=socket.gethostname(), since_ms=now_ms, seen_ms=now_ms)

    @property
    def wanted(self) -> RunControl:
        """The record that the run wants now."""
        return self._wanted

    def want(
        self,
        *,
        job: int = 0,
        version: int = 0,
        stop: bool = False,
        ended: bool = False,
        generation: int = 0,
        attempts: Attempts = (),
    ) -> None:
        """Want this, too; numbers never decrease, and a stop or an end is final. An end is a stop, too."""
        with self._changing:
            old = self._wanted
            self._wanted = replace(
                old,
                job=max(old.job, job),
                version=max(old.version, version),
                stop=old.stop or stop or ended,
                ended=old.ended or ended,
                generation=max(old.generation, generation),
                attempts=newest_attempts(old.attempts + attempts),
            )

    def claim(self, found: RunControl | None) -> None:
        """Want the generation of a run that claims the flow after the run of the record ``found``."""
        own = found is not None and found.run == self.run
        self.want(generation=(0 if found is None else found.generation) + (0 if own else 1))


class RunControlClient:
    """Reads and writes the control record of one flow on its target. Thread-safe, as Admin is.

    In the process of a run only :meth:`sync` writes its record, one thread at a time, as :func:`decide` says; all that
    the run wants stays wanted. So another process that overwrites a part of it is corrected by the next :meth:`sync`,
    and a thread that is late undoes nothing.
    """

    def __init__(self, admin: Admin, flow: str, run: str = "", record: RunRecord | None = None) -> None:
        """``admin`` is the target's. Without a ``run``, the record may only be read, and its run be stopped.

        ``record`` is the run's, if it has several clients.
        """
        self._admin: Final = admin
        self._flow: Final = flow
        self._record: Final = record or RunRecord(run)
        self.run: Final = self._record.run

    def read(self, timeout_ms: int = _CLUSTER_CALL_TIMEOUT_MS) -> RunControl | None:
        """Return the flow's control record, or None if there is none. Raises KafkaError."""
        group, tp = control_partition(self._flow)
        return from_offset(self._admin.group_offsets(group, [tp], timeout_ms=timeout_ms).get(tp))

    # --- the run itself

    def claim(self) -> RunControl | None:
        """Make this run the one that copies the flow. Return the run that it takes over from, unless that has ended.

        Raises KafkaError.
        """
        with self._record.writing:
            previous = self.read()
            self._record.claim(previous)
            if previous is None or previous.run != self.run:
                self._commit(replace(self._record.wanted, seen_ms=_unix_ms()))
            self._record.claimed = True
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

    def sync(self) -> Decision:
        """Read the record, commit it again if it is not as this run wants it, and return what was decided.

        To be called every few seconds, also so that the record does not expire. Raises KafkaError.
        """
        with self._record.writing:
            return self._sync(_CLUSTER_CALL_TIMEOUT_MS)

    def announce_assignments(self, version: int) -> None:
        """Have the running tasks read the assignments up to ``version``.

        Raises KafkaError. The next :meth:`sync` repeats it, if that fails.
        """
        self._record.want(version=version)
        self.sync()

    def end(self) -> RunControl | None:
        """Record that this run has ended. Return the record of another run, if one has taken over. Raises KafkaError.

        If another thread is writing, and does not come to its end within 2 s, that thread records it.
        """
        self._record.want(ended=True)
        if self._record.writing.acquire(timeout=_END_TIMEOUT_MS / 1000):
            try:
                return self._sync(_END_TIMEOUT_MS).fenced_by
            finally:
                self._record.writing.release()
        return None

    def _sync(self, timeout_ms: int) -> Decision:
        while True:
            wanted = self._record.wanted
            try:
                found = self.read(timeout_ms)
                if not self._record.claimed:
                    self._record.claim(found)
                    wanted = self._record.wanted
                decision = decide(found, wanted, claimed=self._record.claimed, unix_ms=_unix_ms())
                if decision.commit is not None:
                    self._commit(decision.commit, timeout_ms)
                if decision.fenced_by is None:
                    self._record.claimed = True
            except KafkaError:
                if self._record.wanted == wanted:
                    raise
            else:
                if self._record.wanted == wanted:
                    return decision

    # --- other processes

    def stop(self) -> RunControl | None:
        """Ask the run that copies this flow to end in order, and return its record; None if no run copies it.

        Raises KafkaError.
        """
        control = self.read()
        if control is None or control.ended:
            return None
        self._commit(control.stopped())
        return control

    def resume(self) -> RunControl | None:
        """Have a stream begin the flow again that it holds since :meth:`stop`; None if the flow's run goes on.

        The record of a run that has ended by itself is the same: only a stream that holds the flow begins it again.
        Raises KafkaError.
        """
        control = self.read()
        if control is None or not (control.stop and control.ended):
            return None
        self._commit(replace(control, stop=False))
        return control

    def mark_ended(self, control: RunControl) -> None:
        """Record that the run of ``control`` has ended, because it died. Raises KafkaError."""
        if self.read() == control.stopped():
            self._commit(control.stopped(ended=True))

    def _commit(self, control: RunControl, timeout_ms: int = _CLUSTER_CALL_TIMEOUT_MS) -> None:
        group, tp = control_partition(self._flow)
        self._admin.commit_group_offsets(group, {tp: control.to_offset()}, timeout_ms=timeout_ms)
