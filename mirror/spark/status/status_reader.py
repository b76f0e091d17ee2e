"""Reads the status of a flow: the lag of its progress on the target behind the ends of its source. Changes nothing.

::

    both clusters ────────────────FlowObserver──► Observation ──LagTracker──► Lag ─┐
    the status topic ─────────────Recorded──────► LastError ───────────────────────┴─► PartitionStatus ──► FlowStatus
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from mirror.client import Admin, TopicPartition
from mirror.cluster.settings import ClusterSettings
from mirror.errors import KafkaError, MirrorError
from mirror.relay.model.way_notes import configured_reason
from mirror.relay.progress.gaps import Gap, GapKind
from mirror.relay.progress.status_topic import STATUS_MS, StatusFollower
from mirror.runtime.clock import SystemClock
from mirror.spark.contact import contact
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.status.flow_status import FlowStatus, PartitionStatus
from mirror.spark.status.index_size import read_index_size
from mirror.spark.status.observation import FlowObserver, Observation
from mirror.spark.status.recorded import LastError, Recorded
from mirror.spark.status.takeover_state import read_resumed
from mirror.telemetry.lag.lags import STUCK_AFTER_S, UNKNOWN_LAG, Lag, LagState, LagTracker, totals, uncopied

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path
    from types import TracebackType

    from mirror.alignment.sync_state import SyncState
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.groups.summary import GroupsSummary
    from mirror.relay.model.reports import TaskState
    from mirror.relay.progress.status_values import RunState
    from mirror.spark.ledger.obstacles import TargetTopics
    from mirror.spark.ledger.status_table import StatusTable
    from mirror.telemetry.evidence import Evidence
    from mirror.telemetry.lag.offset_history import PartitionOffsets

WATCH_CALL_TIMEOUT_MS: Final = 10_000
"""The time-out of each call if the status is read again soon, and a user waits for it."""
_TIMEOUT_KEY: Final = "default.api.timeout.ms"
_INDEX_INTERVAL_MS: Final = 300_000
"""The size of the offset index changes slowly, and brokers return it with those of all their logs."""
_UNKNOWN_INDEX_INTERVAL_MS: Final = 30_000
"""How long an unknown size is not asked for again: a new flow has no index yet, a user may lack the permission."""

_HELD: Final = "held"
_GONE: Final = "gone"
_RESUMED_INTERVAL_MS: Final = 10_000
"""What runs have found of MirrorMaker 2 is read again after so long."""


class StatusReader:
    """Reads the status of one flow again and again; rates need two readings at least.

    Between readings it keeps its connections, the samples of offsets, and what :class:`FlowObserver` caches.
    """

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        *,
        report_dir: Path | None = None,
        call_timeout_ms: int | None = None,
        unix_ms: Callable[[], int] | None = None,
    ) -> None:
        """``report_dir`` has the ledger of the flow's runs; None: it is not read.

        ``call_timeout_ms`` bounds each call; None: the clusters' configuration does. ``unix_ms`` returns ms since 1970;
        None: by this host's clock.
        """
        self.flow: Final = flow
        self.waited_ms = 0
        """How long the last reading waited for the status topic: that is no load on the clusters."""
        self._config: Final = config
        self._call_timeout_ms: Final = call_timeout_ms
        self._clock: Final = SystemClock()
        self._unix_ms: Final = unix_ms or self._clock.unix_ms
        self._report_dir: Final = report_dir
        self._recorded: Final = Recorded()
        self._observer: Final = FlowObserver(flow, self._recorded, self._unix_ms, self._first_targets)
        self._lags: Final = LagTracker()
        self._clients: tuple[Admin, Admin] | None = None
        self._follower: StatusFollower | None = None
        self._index_bytes: int | None = None
        self._index_due_ms = 0
        self._resumed: str | None = None
        self._resumed_due_ms = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next reading opens new ones."""
        for client in (*(self._clients or ()), *([self._follower] if self._follower else [])):
            client.close()
        self._clients = self._follower = None

    def read(self) -> FlowStatus:
        """Read both clusters. Raises FlowError if no topic matches, KafkaError if a cluster does not answer."""
        try:
            return self._read(*self._open())
        except MirrorError:
            self.close()
            raise

    @property
    def evidence(self) -> Evidence:
        """The last verification and rehearsal on any host, as of the last reading."""
        return self._recorded.table.evidence

    def read_alone(self, away: str, error: MirrorError) -> FlowStatus:
        """Read one cluster while the other one, ``away``, does not answer because of ``error``. Raises as :meth:`read`.

        The partitions have the progress or the ends, and no lags.
        """
        source, target = self._open()
        unread = self._follow() if away != self.flow.target else ""
        observer = self._observer
        found = observer.observe_source(source) if away == self.flow.target else observer.observe_target(target)
        lags = dict.fromkeys(found.offsets, UNKNOWN_LAG)
        status = self._status(
            found, lags, {tp: LastError(line, found.time_ms) for tp, line in found.unanswered.items()}
        )
        return replace(status, away={away: " ".join(str(error).split())}, unread=unread)

    def _open(self) -> tuple[Admin, Admin]:
        if self._clients is None:
            source = self._admin(self.flow.source)
            try:
                self._clients = source, self._admin(self.flow.target)
            except BaseException:
                source.close()
                raise
        return self._clients

    def _admin(self, cluster: str) -> Admin:
        options = self._config.clusters[cluster].client_options()
        if self._call_timeout_ms is not None:
            options[_TIMEOUT_KEY] = min(self._call_timeout_ms, ClusterSettings.parse(options).default_api_timeout_ms)
        return Admin(options)

    def _read(self, source: Admin, target: Admin) -> FlowStatus:
        unread = self._follow()
        observation = self._observer.observe(source, target)
        retention_ms = self._observer.retention_ms(source, {tp.topic for tp in observation.offsets})
        failures = self._failures_of(observation)
        lags = self._lags_of(observation, retention_ms, failures)
        status = self._status(observation, lags, self._last_errors_of(observation, lags, failures))
        index_bytes = self._index_size(target, observation.time_ms)
        mirrormaker = self._mirrormaker(target, observation.time_ms)
        return replace(status, index_bytes=index_bytes, mirrormaker=mirrormaker, unread=unread)

    def _follow(self) -> str:
        """Take in what the status topic has that is new; return why it cannot be read, or an empty text."""
        began_ms = self._clock.now()
        try:
            return self._take_news()
        finally:
            self.waited_ms = self._clock.now() - began_ms

    def _take_news(self) -> str:
        try:
            if self._follower is None:
                options = self._config.clusters[self.flow.target].client_options()
                self._follower = StatusFollower(options, self.flow.name)
            news = self._follower.news(min(self._call_timeout_ms or STATUS_MS, STATUS_MS))
        except KafkaError as error:
            return str(error)
        self._recorded.table.apply(news)
        return "" if news.error is None else str(news.error)

    def _status(
        self,
        observation: Observation,
        lags: Mapping[TopicPartition, Lag],
        last_errors: Mapping[TopicPartition, LastError],
    ) -> FlowStatus:
        ways = self._ways_of(observation)
        losses = self._recorded.target_losses()
        return FlowStatus(
            flow=self.flow.name,
            source=self.flow.source,
            target=self.flow.target,
            time_ms=observation.time_ms,
            run=observation.run,
            state=_state_of(self._recorded.table, observation),
            tasks=_tasks_of(self._recorded.table, observation),
            totals=totals(lags.values()),
            partitions=[
                _partition_status(
                    tp,
                    self.flow.target_topic(tp.topic),
                    observation,
                    lag,
                    last_errors.get(tp),
                    ways.get(tp, ("", "")),
                    losses.get(tp, ""),
                )
                for tp, lag in lags.items()
            ],
            groups=self._groups(),
            sync=self._sync(),
        )

    def _index_size(self, target: Admin, now_ms: int) -> int | None:
        """Return the size of the offset index in bytes, which is read again after a while; None if it is not known."""
        if now_ms >= self._index_due_ms:
            self._index_bytes = read_index_size(target, self.flow.name)
            self._index_due_ms = now_ms + (
                _UNKNOWN_INDEX_INTERVAL_MS if self._index_bytes is None else _INDEX_INTERVAL_MS
            )
        return self._index_bytes

    def _mirrormaker(self, target: Admin, now_ms: int) -> str | None:
        """Return the line about a MirrorMaker 2 that copies again, which is read again after a while."""
        if now_ms >= self._resumed_due_ms:
            options = self._config.clusters[self.flow.target].client_options()
            self._resumed = read_resumed(target, options, self.flow.name)
            self._resumed_due_ms = now_ms + _RESUMED_INTERVAL_MS
        return self._resumed

    def _groups(self) -> GroupsSummary | None:
        """Return the groups after the last round that any run has recorded in the report folder."""
        if not self.flow.follows_groups:
            return None
        found = (ledger.groups() for ledger in self._ledgers())
        return next((groups for groups in found if groups is not None), None)

    def _sync(self) -> SyncState | None:
        """Return what else is in step after the last rounds that any run has recorded in the report folder."""
        found = (ledger.sync() for ledger in self._ledgers())
        return next((state for state in found if state is not None), None)

    def _first_targets(self) -> TargetTopics | None:
        """Return the preparation with which the last run on this host has begun; None if it is not known."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            return next((ledger.first_targets() for ledger in self._ledgers()), None)
        return None

    def _ledgers(self) -> list[Ledger]:
        """Return the ledgers of the runs on this host, the newest first."""
        return [] if self._report_dir is None else Ledger.runs(self._report_dir, self.flow.name)

    def _failures_of(self, observation: Observation) -> dict[TopicPartition, LastError]:
        """Return the errors of partitions that cannot be copied now, or failed and have made no progress since."""
        recorded = self._recorded.failures()
        progress = observation.progress
        known = {
            tp: error
            for tp, error in recorded.items()
            if tp in observation.offsets and (tp not in progress or progress[tp].time_ms <= error.time_ms)
        }
        gaps = observation.gaps.items() if self.flow.on_gap == "fail" else ()
        lost = observation.lost_copies if self.flow.on_target_recreated == "fail" else {}
        seen = {tp: str(gap) for tp, gap in gaps if gap.kind is not GapKind.RETENTION} | lost | observation.obstacles
        return known | {tp: LastError(line, observation.time_ms) for tp, line in seen.items()}

    def _lags_of(
        self,
        observation: Observation,
        retention_ms: Mapping[str, int | None],
        failures: Collection[TopicPartition],
    ) -> dict[TopicPartition, Lag]:
        self._lags.add_sample(observation.time_ms, observation.offsets)
        # Between scheduled runs nothing advances, and nothing is stuck.
        stuck_after_s = math.inf if observation.run is None else STUCK_AFTER_S
        lags = self._lags.estimates(self._unix_ms(), retention_ms, stuck_after_s=stuck_after_s)
        lags |= {tp: _lag_with_gap(lags[tp], gap, observation.offsets[tp]) for tp, gap in observation.gaps.items()}
        for tp, lag in lags.items():
            if lag.state is LagState.NOT_BEGUN or tp in observation.lost_copies:
                lags[tp] = uncopied(lag, observation.firsts.get(tp), observation.offsets[tp].end, LagState.NOT_BEGUN)
        # Without a leader it is not known how far behind they are, and what had failed may not fail again.
        failed = (tp for tp in failures if lags[tp].state not in {LagState.NO_LEADER, LagState.LOSING})
        return lags | {tp: lags[tp]._replace(state=LagState.FAILED) for tp in failed}

    def _last_errors_of(
        self,
        observation: Observation,
        lags: Mapping[TopicPartition, Lag],
        failures: Mapping[TopicPartition, LastError],
    ) -> dict[TopicPartition, LastError]:
        """Return the errors of unhealthy partitions; those that are observed now replace recorded ones."""
        unhealthy = [tp for tp, lag in lags.items() if lag.state.unhealthy]
        recorded = self._recorded.last_errors(unhealthy)
        gaps = {tp: str(gap) for tp, gap in observation.gaps.items()}
        lines = observation.unanswered | gaps | observation.lost_copies | observation.obstacles
        return {**recorded, **failures} | {tp: LastError(line, observation.time_ms) for tp, line in lines.items()}

    def _ways_of(self, observation: Observation) -> dict[TopicPartition, tuple[str, str]]:
        """Return the way of each partition with progress, and the reason that is known for it; none at least once."""
        if not self.flow.exactly_once:
            return {}
        mode = self.flow.exactly_once_by
        reasons = self._recorded.way_reasons()
        return {
            tp: (
                progress.way.value,
                configured_reason(mode) if mode == progress.way else reasons.get((tp, progress.way.value), ""),
            )
            for tp, progress in observation.progress.items()
        }


def read_statuses(
    config: MirrorConfig,
    flows: Collection[FlowConfig],
    *,
    report_dir: Path | None = None,
    on_waiting: Callable[[str], None] | None = None,
) -> tuple[list[FlowStatus], dict[str, MirrorError]]:
    """Read the status of each flow once, without rates; of one side if the other one does not answer.

    ``on_waiting`` is called with a line about a cluster that has not answered yet. Returns the statuses, and by flow
    the errors of those that could not be read.
    """
    answers = contact(config, {name for flow in flows for name in (flow.source, flow.target)}, on_waiting)
    statuses: list[FlowStatus] = []
    errors: dict[str, MirrorError] = {}
    for flow in flows:
        away = [(name, error) for name in (flow.source, flow.target) if (error := answers.get(name)) is not None]
        if len(away) > 1:
            errors[flow.name] = away[0][1]
            continue
        try:
            with StatusReader(config, flow, report_dir=report_dir) as reader:
                statuses.append(reader.read_alone(*away[0]) if away else reader.read())
        except MirrorError as error:  # also of a flow that matches no topic
            errors[flow.name] = error
    return statuses, errors


def _state_of(table: StatusTable, observation: Observation) -> RunState | None:
    """Return what the last run says of the flow; None if a later one copies it now, which says nothing there."""
    run, state, control = observation.run, table.run, observation.control
    if state is None or (run is not None and state.run < run.run):
        return None
    if state.state == _HELD and control is not None and control.run == state.run:
        # A stream renews the record of a flow that it holds.
        return replace(state, state=_GONE) if control.is_dead(observation.time_ms) else state
    return state


def _tasks_of(table: StatusTable, observation: Observation) -> list[TaskState]:
    """Return the tasks of the last job of the run that copies the flow now, by number."""
    run = None if observation.run is None else observation.run.run
    tasks = [task for _, task in sorted(table.tasks.items()) if task.run == run]
    last = max((task.job for task in tasks), default=0)
    return [task for task in tasks if task.job == last]


def _partition_status(
    tp: TopicPartition,
    target_topic: str,
    observation: Observation,
    lag: Lag,
    last_error: LastError | None,
    way: tuple[str, str],
    target_loss: str,
) -> PartitionStatus:
    offsets, progress = observation.offsets[tp], observation.progress.get(tp)
    return PartitionStatus(
        topic=tp.topic,
        partition=tp.partition,
        target_topic=target_topic,
        earliest=offsets.earliest,
        end=offsets.end,
        progress=offsets.progress,
        committed_ms=None if progress is None or not progress.time_ms else progress.time_ms,
        lag=lag,
        last_error=last_error,
        high_watermark=observation.high_watermarks.get(tp),
        withheld=observation.withheld.get(tp),
        way=way[0],
        way_reason=way[1],
        target_loss=target_loss,
    )


def _lag_with_gap(lag: Lag, gap: Gap, offsets: PartitionOffsets) -> Lag:
    """Return the lag of a partition whose copy cannot resume at its progress, because of a gap.

    If the topic was recreated, all of its records are to be copied. If its log was truncated, it is not known how many
    records it has got since.
    """
    if gap.kind is GapKind.RETENTION:
        return lag._replace(state=LagState.LOSING)
    recreated = gap.kind is GapKind.RECREATED and offsets.end is not None
    records = max(0, (offsets.end or 0) - gap.resume) if recreated else None
    return Lag(records, None, None, None, None, None, LagState.STUCK)
