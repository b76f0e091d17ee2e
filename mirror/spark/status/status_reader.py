"""Reads the status of a flow: the lag of its progress on the target behind the ends of its source. Changes nothing.

::

    both clusters ────────FlowObserver──► FlowView ──LagTracker──► Lag ─┐
    the status topic ─────────────────────StatusTable──► LastError ────────┴─► PartitionStatus ──► FlowStatus
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.closing import Closing
from mirror.errors import KafkaError, MirrorError
from mirror.relay.progress.status_topic import STATUS_MS, StatusFollower
from mirror.runtime.clock import SystemClock
from mirror.spark.clusters import Clusters
from mirror.spark.ledger.status_table import LastError, StatusTable
from mirror.spark.status.flow_status import FlowStatus
from mirror.spark.status.flow_view import FlowObserver
from mirror.spark.status.held_state import read_latch_of, read_resumed
from mirror.spark.status.index_size import read_index_size
from mirror.spark.status.partition_status import failures_of, lags_of, statuses_of, troubles_of
from mirror.telemetry.lag.lags import UNKNOWN_LAG, LagTracker, totals

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from mirror.client import TopicPartition
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Side, Sides
    from mirror.relay.model.reports import TaskState
    from mirror.relay.progress.latch import Latch
    from mirror.relay.progress.status_values import RunState
    from mirror.spark.status.flow_view import FlowView
    from mirror.spark.status.partition_status import Results
    from mirror.telemetry.lag.lags import Lag

    Reports = Callable[[], tuple[StatusTable, str]]
    """Returns what the status topic has, and why that may be out of date; an empty text: it is not."""

WATCH_CALL_TIMEOUT_MS: Final = 10_000
"""The time-out of each call if the status is read again soon, and a user waits for it."""
_INDEX_INTERVAL_MS: Final = 300_000
"""The size of the offset index changes slowly, and brokers return it with those of all their logs."""
_UNKNOWN_INDEX_INTERVAL_MS: Final = 30_000
"""How long an unknown size is not asked for again: a new flow has no index yet, a user may lack the permission."""

_HELD: Final = "held"
_GONE: Final = "gone"
_HELD_INTERVAL_MS: Final = 10_000
"""The latch, and what runs have found of MirrorMaker 2, are read again after so long."""


class StatusReader(Closing):
    """Reads the status of one flow again and again; rates need two readings at least.

    Between readings it keeps its connections, the samples of offsets, and what :class:`FlowObserver` caches.
    """

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        *,
        clusters: Clusters | None = None,
        reports: Reports | None = None,
        call_timeout_ms: int | None = None,
        unix_ms: Callable[[], int] | None = None,
    ) -> None:
        """``clusters`` have the clients, which the caller closes; None: the reader has its own.

        ``reports`` are those of a driver, which follows the status topic; None: the reader does.

        ``call_timeout_ms`` bounds each call; None: the clusters' configuration does. ``unix_ms`` returns ms since 1970;
        None: by this host's clock.
        """
        self.flow: Final = flow
        self.table = StatusTable()
        """What the status topic had at the last reading."""
        self._config: Final = config
        self._call_timeout_ms: Final = call_timeout_ms
        self._unix_ms: Final = unix_ms or SystemClock().unix_ms
        self._reports: Final = reports or self._follow
        self._observer: Final = FlowObserver(flow, self._unix_ms)
        self._lags: Final = LagTracker()
        self._own: Final = Clusters(config, call_timeout_ms)
        self._clusters: Final = clusters or self._own
        self._follower: StatusFollower | None = None
        self._index_bytes: int | None = None
        self._index_due_ms = 0
        self._resumed: str | None = None
        self._latch: Latch | None = None
        self._held_due_ms = 0

    def close(self) -> None:
        """Close the connections; the next reading opens new ones."""
        self._own.close()
        if self._follower is not None:
            self._follower.close()
        self._follower = None

    def read(self, sides: Sides | None = None) -> FlowStatus:
        """Read both clusters, by an observation that a command has begun; None: by a new one.

        If it has found one of them away, the partitions have the progress or the ends, and no lags. Raises
        FlowError if no topic matches, KafkaError if a cluster does not answer.
        """
        try:
            return self._read(sides or self._clusters.of(self.flow).again())
        except MirrorError:
            self.close()
            raise

    def _read(self, sides: Sides) -> FlowStatus:
        unread = ""
        if sides.target.away is None:
            self.table, unread = self._reports()
        observation = self._observer.observe(sides, self.table)
        if observation.away:
            troubles = {tp: LastError(line, observation.time_ms) for tp, line in observation.unanswered.items()}
            lags = dict.fromkeys(observation.offsets, UNKNOWN_LAG)
            status = self._status(observation, lags, troubles, self.table.results())
            status = replace(status, away=observation.away, unread=unread)
            return status if sides.target.away is not None else self._with_held(status, sides.target)
        retention_ms = self._observer.retention_ms(sides.source, {tp.topic for tp in observation.offsets})
        results = self.table.results()
        failures = failures_of(self.flow, observation, results)
        lags = lags_of(self._lags, observation, retention_ms, failures, self._unix_ms())
        status = self._status(observation, lags, troubles_of(observation, lags, failures, results), results)
        index_bytes = self._index_size(sides.target, observation.time_ms)
        return self._with_held(replace(status, index_bytes=index_bytes, unread=unread), sides.target)

    def _follow(self) -> tuple[StatusTable, str]:
        """Take in what the status topic has that is new."""
        try:
            if self._follower is None:
                options = self._config.clusters[self.flow.target].client_options()
                self._follower = StatusFollower(options, self.flow.name)
            news = self._follower.news(min(self._call_timeout_ms or STATUS_MS, STATUS_MS))
        except KafkaError as error:
            return self.table, str(error)
        self.table.apply(news)
        return self.table, "" if news.error is None else str(news.error)

    def _status(
        self,
        observation: FlowView,
        lags: Mapping[TopicPartition, Lag],
        troubles: Mapping[TopicPartition, LastError],
        results: Results,
    ) -> FlowStatus:
        table, flow = self.table, self.flow
        return FlowStatus(
            flow=flow.name,
            source=flow.source,
            target=flow.target,
            time_ms=observation.time_ms,
            run=observation.run,
            state=_state_of(table, observation),
            tasks=_tasks_of(table, observation),
            tasks_seen_ms=max((one.seen_ms for one in table.tasks.values()), default=None),
            totals=totals(lags.values()),
            partitions=statuses_of(flow, observation, table, results, lags, troubles),
            groups=table.groups if flow.follows_groups else None,
            sync=table.sync,
            evidence=table.evidence,
        )

    def _index_size(self, target: Side, now_ms: int) -> int | None:
        """Return the size of the offset index in bytes, which is read again after a while; None if it is not known."""
        if now_ms >= self._index_due_ms:
            self._index_bytes = read_index_size(target, self.flow.name)
            self._index_due_ms = now_ms + (
                _UNKNOWN_INDEX_INTERVAL_MS if self._index_bytes is None else _INDEX_INTERVAL_MS
            )
        return self._index_bytes

    def _with_held(self, status: FlowStatus, target: Side) -> FlowStatus:
        """Add why a person has to decide before the flow copies, which is read again after a while."""
        if status.time_ms >= self._held_due_ms:
            options = self._config.clusters[self.flow.target].client_options()
            self._resumed = read_resumed(target, options, self.flow.name)
            self._latch = read_latch_of(target, options, self.flow.name)
            self._held_due_ms = status.time_ms + _HELD_INTERVAL_MS
        return replace(status, mirrormaker=self._resumed, latch=self._latch)


def read_statuses(
    config: MirrorConfig, flows: Collection[FlowConfig], clusters: Clusters, refusals: Mapping[str, str]
) -> tuple[list[FlowStatus], dict[str, MirrorError]]:
    """Read the status of each flow once, without rates; of one side if the other one is known to be away.

    ``refusals`` are the reasons for which runs would refuse flows, by name. Returns the statuses, of a refused flow in
    any case, and by flow the errors of those that could not be read.
    """
    statuses: list[FlowStatus] = []
    errors: dict[str, MirrorError] = {}
    for flow in flows:
        refused = refusals.get(flow.name, "")
        try:
            with StatusReader(config, flow, clusters=clusters) as reader:
                statuses.append(replace(reader.read(clusters.of(flow)), refused=refused))
        except MirrorError as error:  # also of a flow that matches no topic
            errors[flow.name] = error
            if refused:
                statuses.append(_refused_only(flow, refused))
    return statuses, errors


def _refused_only(flow: FlowConfig, reason: str) -> FlowStatus:
    return FlowStatus(
        flow=flow.name,
        source=flow.source,
        target=flow.target,
        time_ms=SystemClock().unix_ms(),
        run=None,
        totals=totals([]),
        partitions=[],
        refused=reason,
    )


def _state_of(table: StatusTable, observation: FlowView) -> RunState | None:
    """Return what the last run says of the flow; None if a later one copies it now, which says nothing there."""
    run, state, control = observation.run, table.run, observation.control
    if state is None or (run is not None and state.run < run.run):
        return None
    if state.state == _HELD and control is not None and control.run == state.run:
        # A stream renews the record of a flow that it holds.
        return replace(state, state=_GONE) if control.is_dead(observation.time_ms) else state
    return state


def _tasks_of(table: StatusTable, observation: FlowView) -> list[TaskState]:
    """Return the tasks of the last job of the run that copies the flow now, by number."""
    run = None if observation.run is None else observation.run.run
    tasks = [task for _, task in sorted(table.tasks.items()) if task.run == run]
    last = max((task.job for task in tasks), default=0)
    return [task for task in tasks if task.job == last]
