"""Follows the control record of a flow that does not run: ``mirror stop``, and other runs of the flow, are noticed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.client import Admin
from mirror.errors import KafkaError
from mirror.runtime.clock import SystemClock
from mirror.spark.preflight import flow_topics
from mirror.spark.run_control import RunControlClient
from mirror.spark.supervision.states import FlowState, Held, Resumed, TakenOver

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.relay.progress.control import RunControl
    from mirror.spark.run_control import RunRecord
    from mirror.spark.supervision.config_file import FlowSettings
    from mirror.spark.supervision.states import Event, Supervised

_CALL_TIMEOUT_MS: Final = 5_000
"""A flow that is to be started waits for a poll."""


class WaitingControl:
    """For one flow and the run that it begins next, in the flow's thread. It keeps its connections."""

    def __init__(self, settings: FlowSettings, record: RunRecord, *, unix_ms: Callable[[], int] | None = None) -> None:
        """``record`` is that of the next run; of a flow that is held, that of its last one."""
        self.settings: Final = settings
        self.record: Final = record
        self._flow: Final = settings.flow
        options = settings.config.clusters[settings.flow.target].client_options()
        self._options: Final = {**options, "default.api.timeout.ms": _CALL_TIMEOUT_MS}
        self._unix_ms: Final = unix_ms or SystemClock().unix_ms
        self._admin: Admin | None = None
        self._has_topics = False

    def poll(self, now: Supervised) -> Event | None:
        """Return what has happened to the flow. A target that does not answer is asked again by the next call."""
        try:
            if self._admin is None:
                self._admin = Admin(self._options)
            client = RunControlClient(self._admin, self._flow.name, record=self.record)
            found = client.read(_CALL_TIMEOUT_MS)
            return self._of_held(now, found) if now.state is FlowState.HELD else self._of_waiting(client, found)
        except KafkaError:
            self.close()
            return None

    def _of_held(self, now: Supervised, found: RunControl | None) -> Event | None:
        if now.by_other_run:
            return Resumed() if found is None or found.ended or found.is_dead(self._unix_ms()) else None
        return Resumed() if found is not None and found.run == self.record.run and not found.stop else None

    def _of_waiting(self, client: RunControlClient, found: RunControl | None) -> Event | None:
        if found is not None and found.other_run_active(self.record.run) and not found.is_dead(self._unix_ms()):
            # It is left alone until this flow can run. Then the flow takes over.
            return TakenOver(found.run, found.host) if self.record.claimed else None
        self._prepare_topics()
        if not self.record.claimed:
            client.claim()
        decision = client.sync()
        if decision.fenced_by is not None:
            return TakenOver(decision.fenced_by.run, decision.fenced_by.host)
        if not decision.stop:
            return None
        client.end()
        return Held()

    def _prepare_topics(self) -> None:
        """The record is about the flow's progress topic, and its state is in the status topic."""
        if not self._has_topics and self._admin is not None:
            flow_topics.prepare(flow_topics.on_target(self._flow), self._admin)
            self._has_topics = True

    def leave(self) -> None:
        """Record that the flow's run has ended, if it is known as one, and close the connections."""
        if self.record.claimed and not self.record.wanted.ended:
            try:
                admin = self._admin or Admin(self._options)
                self._admin = admin
                RunControlClient(admin, self._flow.name, record=self.record).end()
            except KafkaError:
                pass  # it is taken for dead soon
        self.close()

    def close(self) -> None:
        """Close the connections."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
