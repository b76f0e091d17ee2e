"""The driver's side of run control: which run copies a flow, whether it is to stop, and which job runs.

Tasks read the same record; :mod:`mirror.relay.progress.control_record` says what it holds and where it is stored.
"""

from __future__ import annotations

import secrets
import socket
import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from mirror.relay.progress.control_record import Attempts, RunControl, control_partition, from_offset, newest_attempts
from mirror.spark.control_decision import ControlDecision, decide

if TYPE_CHECKING:
    from collections.abc import Container

    from mirror.client import Admin

_CALL_TIMEOUT_MS: Final = 10_000


def new_run_id() -> str:
    """Return a unique identifier for a run; identifiers sort by time."""
    return f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%fZ')}-{secrets.token_hex(3)}"


def claimed_message(previous: RunControl) -> str:
    """Return the line that a run logs when it claims a flow from a ``previous`` run that is not known to have ended."""
    return f"took over from run {previous.run} on {previous.host}, which had not said that it ended"


def _unix_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


class RunControlClient:
    """Reads and writes the control record of one flow on its target.

    In the process of a run only one thread writes its record, in :meth:`sync` as :func:`decide` says; all that the run
    wants stays wanted. So another process that overwrites a part of it is corrected by the next :meth:`sync`.
    """

    def __init__(self, admin: Admin, flow: str, run: str = "") -> None:
        """``admin`` is the target's. Without a ``run``, the record may only be read, and its run be stopped."""
        self._admin: Final = admin
        self._flow: Final = flow
        self._changing: Final = threading.Lock()
        now_ms = _unix_ms()
        self._wanted = RunControl(run=run, host=socket.gethostname(), since_ms=now_ms, seen_ms=now_ms)
        self.run: Final = run

    def read(self, timeout_ms: int = _CALL_TIMEOUT_MS) -> RunControl | None:
        """Return the flow's control record, or None if there is none. Raises KafkaError."""
        group, tp = control_partition(self._flow)
        return from_offset(self._admin.group_offsets(group, [tp], timeout_ms=timeout_ms).get(tp))

    # --- the run itself

    @property
    def wanted(self) -> RunControl:
        """What the run wants the record to say."""
        return self._wanted

    def want(
        self, *, job: int = 0, version: int = 0, ended: bool = False, generation: int = 0, attempts: Attempts = ()
    ) -> None:
        """Want this, too; numbers never decrease, and an end is final. From any thread."""
        with self._changing:
            old = self._wanted
            self._wanted = replace(
                old,
                job=max(old.job, job),
                version=max(old.version, version),
                stop=old.stop or ended,
                ended=old.ended or ended,
                generation=max(old.generation, generation),
                attempts=newest_attempts(old.attempts + attempts),
            )

    # Invariant: Of two runs the later claim has the flow, by its generation: neither clocks nor a late write give it
    #   back to the earlier one, and no write takes back what another process has commanded.
    # Test: tests/spark/test_run_control.py::test_a_run_that_was_replaced_cannot_take_the_flow_back
    # Test: tests/spark/test_control_decision.py::test_a_committed_record_takes_nothing_back_and_needs_no_further_commit
    def claim(self, earlier: Container[str] = ()) -> RunControl | None:
        """Make this run the one that copies the flow. Return the run that it takes over from, unless that has ended.

        A command to one of the ``earlier`` runs, which this one continues, is one to this run. Raises KafkaError.
        """
        previous = self.read()
        own = previous is not None and previous.run == self.run
        self.want(generation=(0 if previous is None else previous.generation) + (0 if own else 1))
        other = previous if previous is not None and previous.other_run_active(self.run) else None
        if not own:
            stop = other is not None and other.stop and other.run in earlier
            self._commit(replace(self._wanted, seen_ms=_unix_ms(), stop=self._wanted.stop or stop))
        return other

    def sync(self) -> ControlDecision:
        """Read the record, commit it again if it is not as this run wants it, and return what was decided.

        To be called every few seconds, also so that the record does not expire. Raises KafkaError.
        """
        decision = decide(self.read(), self._wanted, unix_ms=_unix_ms())
        if decision.commit is not None:
            self._commit(decision.commit)
        return decision

    # --- without a run

    def end(self, runs: Container[str]) -> None:
        """Record that the run of the record has ended, if that is one of ``runs``. Raises KafkaError."""
        control = self.read()
        if control is not None and control.run in runs and not control.ended:
            self._commit(control.stopped(ended=True))

    def stop(self, run: str | None = None) -> RunControl | None:
        """Ask the run that copies this flow to end in order, and return its record; None if no run copies it.

        With ``run``, only if it is that one. Raises KafkaError.
        """
        control = self.read()
        if control is None or control.ended or run not in {None, control.run}:
            return None
        self._commit(control.stopped())
        return control

    def halt(self, control: RunControl, *, ended: bool = False) -> None:
        """Stop the run of ``control``, and have the tasks of its job end for good: a later resume is not for them.

        ``ended``: it has died. Raises KafkaError.
        """
        self._commit(replace(control.stopped(ended=ended), job=control.job + 1))

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

    def _commit(self, control: RunControl) -> None:
        group, tp = control_partition(self._flow)
        self._admin.commit_group_offsets(group, {tp: control.to_offset()}, timeout_ms=_CALL_TIMEOUT_MS)
