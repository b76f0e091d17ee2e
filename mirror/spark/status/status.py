"""How far a flow is: its progress on the target against its source's ends. Looks only; changes nothing."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from mirror.client import EARLIEST, LATEST, Admin, ConfigResource, TopicPartition
from mirror.cluster.settings import ClusterSettings
from mirror.errors import AuthorizationFailed, KafkaError, MirrorError
from mirror.relay.batches.topic_config import FOREVER, TopicConfig, readable
from mirror.relay.progress.committed import ProgressStore
from mirror.relay.progress.gaps import Gap, GapKind, classify
from mirror.relay.progress.open_transactions import OpenTransaction, observed
from mirror.runtime.clock import SystemClock
from mirror.spark.ledger.last_errors import LastError, LastErrors
from mirror.spark.ledger.obstacles import colliding, too_long
from mirror.spark.planning.open_transactions import high_watermarks, with_producers
from mirror.spark.planning.range_planner import NO_LEADER, NO_LEADER_TEXT, select_topics
from mirror.spark.run_control import RunControlClient
from mirror.telemetry.lag.lags import STUCK_AFTER_S, Lag, LagState, LagTotals, LagTracker, totals
from mirror.telemetry.lag.offset_history import PartitionOffsets

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path
    from types import TracebackType

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.progress.committed import Progress
    from mirror.relay.progress.control import RunControl

WATCH_CALL_TIMEOUT_MS: Final = 10_000
"""What a call may take where the next look comes soon, and somebody waits for this one."""
_SILENT_MS: Final = 10_000
"""A leader that does not answer must not keep the others from being shown."""
_START_EVERY_MS: Final = 1
"""For each partition: a log's start is news only now and then, and 10,000 are asked for it every 10 seconds."""
_TIMEOUT: Final = "default.api.timeout.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One source partition; None where it is not known.

    ``earliest`` is its log's start, ``end`` its last stable offset (no more than where the flow ends), ``progress`` the
    next one to copy, ``committed_ms`` (ms since 1970) when the progress was committed, ``lag`` what that comes to.
    ``trouble`` is what was last said against it; only of one that is sick. ``high_watermark`` is the end that readers
    of all records see (no more than where the flow ends), ``withheld`` the open transaction that keeps what lies
    between the two from being copied, where there is one.
    """

    topic: str
    partition: int
    target_topic: str
    earliest: int | None
    end: int | None
    progress: int | None
    committed_ms: int | None
    lag: Lag
    last_error: LastError | None = None
    high_watermark: int | None = None
    withheld: OpenTransaction | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain values; a time that is infinite is None, as one that is not known."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "target_topic": self.target_topic,
            "state": self.lag.state.value,
            "earliest": self.earliest,
            "end": self.end,
            "progress": self.progress,
            "lag": self.lag.records,
            "committed_ms": self.committed_ms,
            **_measures(self.lag),
            "trouble": None if self.last_error is None else self.last_error.line,
            "trouble_ms": None if self.last_error is None else self.last_error.time_ms,
            "high_watermark": self.high_watermark,
            "withheld": None if self.withheld is None else self.withheld.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStatus:
    """One flow at ``time_ms`` (ms since 1970); ``run`` is who copies it now, as far as it said so, or None.

    ``totals`` are those of its partitions.
    """

    flow: str
    source: str
    target: str
    time_ms: int
    run: RunControl | None
    totals: LagTotals
    partitions: list[PartitionStatus]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "flow": self.flow,
            "source": self.source,
            "target": self.target,
            "time_ms": self.time_ms,
            "run": None if self.run is None else {**asdict(self.run), "gone": self.run.gone(self.time_ms)},
            "lag": self.totals.records,
            "unknown": self.totals.unknown,
            **_measures(self.totals),
            "states": {state.value: count for state, count in self.totals.states.items()},
            "withheld_records": sum(one.withheld.records for one in self.partitions if one.withheld is not None),
            "partitions": [one.to_json() for one in self.partitions],
        }


def _measures(of: Lag | LagTotals) -> dict[str, float | None]:
    measures = {
        "lag_seconds": of.seconds,
        "copied_per_second": of.copied_per_s,
        "produced_per_second": of.produced_per_s,
        "seconds_to_drain": of.drain_s,
        "seconds_to_loss": of.loss_s,
    }
    return {name: None if value is None or math.isinf(value) else round(value, 3) for name, value in measures.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What one look showed, by source partition.

    ``silent``: why it does not tell its end. ``gaps``: why its copy could not go on from the progress. ``high`` are the
    high watermarks, ``withheld`` the open transactions. ``blocked``: why its target topic is not ready.
    """

    time_ms: int
    run: RunControl | None
    offsets: dict[TopicPartition, PartitionOffsets]
    progress: dict[TopicPartition, Progress]
    silent: dict[TopicPartition, str]
    gaps: dict[TopicPartition, Gap]
    high: dict[TopicPartition, int]
    withheld: dict[TopicPartition, OpenTransaction]
    blocked: dict[TopicPartition, str]

    def status(self, tp: TopicPartition, target_topic: str, lag: Lag, trouble: LastError | None) -> PartitionStatus:
        offsets, progress = self.offsets[tp], self.progress.get(tp)
        return PartitionStatus(
            topic=tp.topic,
            partition=tp.partition,
            target_topic=target_topic,
            earliest=offsets.earliest,
            end=offsets.end,
            progress=offsets.progress,
            committed_ms=None if progress is None or not progress.time_ms else progress.time_ms,
            lag=lag,
            last_error=trouble,
            high_watermark=self.high.get(tp),
            withheld=self.withheld.get(tp),
        )


class StatusReader:
    """Looks at one flow, as often as it is asked to: rates take two looks at least.

    Between looks it keeps its connections, what it saw, and how long the source's topics keep their records.
    ``report_dir`` (None: not asked) is where the flow's runs leave their ledger; ``within_ms``
    bounds each call (None: as the clusters' configuration does). ``wall`` gives ms since 1970 (None: this host's).
    """

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        *,
        report_dir: Path | None = None,
        within_ms: int | None = None,
        wall: Callable[[], int] | None = None,
    ) -> None:
        self.flow: Final = flow
        self._config: Final = config
        self._within_ms: Final = within_ms
        self._wall: Final = wall or SystemClock().unix_ms
        self._troubles: Final = None if report_dir is None else LastErrors(report_dir, flow.name)
        self._lags: Final = LagTracker()
        self._clients: tuple[Admin, Admin] | None = None
        self._retention_ms: dict[str, int | None] = {}
        self._until: dict[TopicPartition, int] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._starts_ms = 0
        self._withheld: dict[TopicPartition, OpenTransaction] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back; the next look makes new ones."""
        for client in self._clients or ():
            client.close()
        self._clients = None

    def read(self) -> FlowStatus:
        """Ask both clusters. Raises FlowError where no topic matches, KafkaError where a cluster cannot be asked."""
        try:
            return self._look(*self._open())
        except MirrorError:
            self.close()
            raise

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
        if self._within_ms is not None:
            options[_TIMEOUT] = min(self._within_ms, ClusterSettings.parse(options).default_api_timeout_ms)
        return Admin(options)

    def _look(self, source: Admin, target: Admin) -> FlowStatus:
        seen = self._see(source, target)
        self._lags.add_sample(seen.time_ms, seen.offsets)
        # Between scheduled runs nothing moves, and nothing is stuck.
        stuck_after_s = math.inf if seen.run is None else STUCK_AFTER_S
        retention_ms = self._retention(source, {tp.topic for tp in seen.offsets})
        lags = self._lags.estimates(self._wall(), retention_ms, stuck_after_s=stuck_after_s)
        lags |= {tp: _behind_a_gap(lags[tp], gap, seen.offsets[tp]) for tp, gap in seen.gaps.items()}
        lags |= {tp: lags[tp]._replace(state=LagState.STUCK) for tp in seen.blocked}
        told = (
            {} if self._troubles is None else self._troubles.of([tp for tp, lag in lags.items() if lag.state.unhealthy])
        )
        gaps = {tp: str(gap) for tp, gap in seen.gaps.items()}
        troubles = told | {
            tp: LastError(line, seen.time_ms) for tp, line in (seen.silent | gaps | seen.blocked).items()
        }
        return FlowStatus(
            flow=self.flow.name,
            source=self.flow.source,
            target=self.flow.target,
            time_ms=seen.time_ms,
            run=seen.run,
            totals=totals(lags.values()),
            partitions=[seen.status(tp, self.flow.target_topic(tp.topic), lags[tp], troubles.get(tp)) for tp in lags],
        )

    def _see(self, source: Admin, target: Admin) -> _Seen:
        topics = source.list_topics()
        wanted = {name: topics[name] for name in select_topics(self.flow, topics)}
        tps = [(TopicPartition(name, one.partition), one.leader) for name in wanted for one in wanted[name].partitions]
        targets = {tp: TopicPartition(self.flow.target_topic(tp.topic), tp.partition) for tp, _ in tps}
        impossible = too_long(self.flow, wanted)
        # Progress before ends: never less lag than there is, and what lies beyond its end is of another log.
        asked = {targets[tp] for tp, _ in tps if tp.topic not in impossible}
        kept = ProgressStore(target, self.flow.name).read(asked)
        run = RunControlClient(target, self.flow.name).read()
        time_ms = self._wall()
        ends, failed = _ask(source, [tp for tp, leader in tps if leader != NO_LEADER], LATEST)
        starts = self._starts_of(source, ends, time_ms)
        high = high_watermarks(source, ends, call_timeout_ms=_SILENT_MS)
        ends = self._bounded(source, ends)
        high = {tp: min(end, self._until.get(tp, end)) for tp, end in high.items()}
        progress = {tp: kept[targets[tp]] for tp, _ in tps if targets[tp] in kept}
        offsets = {
            tp: PartitionOffsets(starts.get(tp), ends.get(tp), progress[tp].offset if tp in progress else None)
            for tp, _ in tps
        }
        ids = {name: str(topic.topic_id or "") for name, topic in wanted.items()}
        gaps = {tp: self._gap(one, ids[tp.topic], offsets[tp], tp) for tp, one in progress.items()}
        return _Seen(
            time_ms=time_ms,
            run=None if run is None or run.ended else run,
            offsets=offsets,
            progress=progress,
            silent={tp: str(failed.get(tp, NO_LEADER_TEXT)) for tp, _ in tps if tp not in ends},
            gaps={tp: gap for tp, gap in gaps.items() if gap is not None},
            high=high,
            withheld=self._open_transactions(source, {tp: (ends[tp], end) for tp, end in high.items()}, time_ms),
            blocked=self._blocked(target, {tp: targets[tp] for tp, _ in tps if tp not in progress}),
        )

    def _open_transactions(
        self, source: Admin, stable: Mapping[TopicPartition, tuple[int, int]], time_ms: int
    ) -> dict[TopicPartition, OpenTransaction]:
        """It is asked at once whose they are, and later where a last stable offset has stood still since."""
        found = observed(self._withheld or {}, stable, time_ms)
        asked = {tp: one for tp, one in found.items() if self._withheld is None or one.since_ms < time_ms}
        self._withheld = found | with_producers(source, asked)
        return self._withheld

    def _blocked(self, target: Admin, targets: Mapping[TopicPartition, TopicPartition]) -> dict[TopicPartition, str]:
        """Which of these partitions, that have no progress, cannot be copied: the target takes no such topic.

        What its brokers said to a creation is in the ledger of the last run.
        """
        flow = self.flow
        obstacles = too_long(flow, {tp.topic for tp in targets})
        there = target.describe_topics(
            {to.topic for tp, to in targets.items() if tp.topic not in obstacles}, partial=True
        )
        lacking = [
            tp
            for tp, to in targets.items()
            if tp.topic not in obstacles and (to.topic not in there or to.partition >= len(there[to.topic].partitions))
        ]
        if missing := {tp.topic for tp in lacking if targets[tp].topic not in there}:
            obstacles |= colliding(flow, missing, target.list_topics().keys())
        last = self._troubles.targets() if lacking and self._troubles is not None else None
        refused = {} if last is None else last.obstacles
        found = {tp: refused[tp.topic].reason for tp in lacking if tp.topic in refused}
        return found | {tp: obstacles[tp.topic].reason for tp in targets if tp.topic in obstacles}

    def _starts_of(self, source: Admin, ends: Collection[TopicPartition], time_ms: int) -> Mapping[TopicPartition, int]:
        if not 0 <= time_ms - self._starts_ms < len(ends) * _START_EVERY_MS:
            self._starts, self._starts_ms = {}, time_ms
        found, _ = _ask(source, [tp for tp in ends if tp not in self._starts], EARLIEST)
        self._starts |= found
        return self._starts

    def _bounded(self, source: Admin, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """No end behind the one of the flow. Where a time is does not change once there is a record of that time."""
        until = self.flow.end_position
        if until is None:
            return dict(ends)
        if until.timestamp_ms is None:
            self._until = dict.fromkeys(ends, until.offset or 0)
        else:
            found, _ = _ask(source, ends.keys() - self._until.keys(), until.timestamp_ms)
            self._until |= {tp: offset for tp, offset in found.items() if offset >= 0}
        return {tp: min(end, self._until.get(tp, end)) for tp, end in ends.items()}

    def _gap(self, progress: Progress, topic_id: str, seen: PartitionOffsets, tp: TopicPartition) -> Gap | None:
        """Why a copy could not go on from the progress, or None."""
        if seen.earliest is None or seen.end is None:
            return None
        until = self._until.get(tp)
        if until is not None and progress.offset >= until:
            return None  # it is done
        return classify(progress, topic_id, seen.earliest, seen.end)

    def _retention(self, source: Admin, topics: Iterable[str]) -> Mapping[str, int | None]:
        """How long the topics keep their records, by name; None for ever, or where that may not be read."""
        lacking = [ConfigResource.topic(name) for name in topics if name not in self._retention_ms]
        if not lacking:
            return self._retention_ms
        try:
            found = source.describe_configs(lacking, partial=True, timeout_ms=_SILENT_MS)
        except KafkaError:
            return self._retention_ms  # the next look asks again
        for resource, entries in found.items():
            told = TopicConfig.of(readable(entries))
            self._retention_ms[resource.name] = None if told.retention_ms == FOREVER else told.retention_ms
        refused = [each.name for each, error in found.failed.items() if isinstance(error, AuthorizationFailed)]
        self._retention_ms |= dict.fromkeys(refused)
        return self._retention_ms


def _behind_a_gap(lag: Lag, gap: Gap, seen: PartitionOffsets) -> Lag:
    """The lag of a partition that its copy cannot go on with: its progress is no place in the log of now.

    Of a topic that was made again nothing is copied. What a log that was cut back has had since is not known.
    """
    if gap.kind is GapKind.RETENTION:
        return lag._replace(state=LagState.LOSING)
    made_again = gap.kind is GapKind.RECREATED and seen.end is not None
    records = max(0, (seen.end or 0) - gap.resume) if made_again else None
    return Lag(records, None, None, None, None, None, LagState.STUCK)


def read_status(config: MirrorConfig, flow: FlowConfig, *, report_dir: Path | None = None) -> FlowStatus:
    """One look; see :meth:`StatusReader.look`. Rates are not known."""
    with StatusReader(config, flow, report_dir=report_dir) as watch:
        return watch.read()


def _ask(
    source: Admin, tps: Collection[TopicPartition], spec: int
) -> tuple[dict[TopicPartition, int], Mapping[TopicPartition, KafkaError]]:
    """The offsets of those who answer, and why the others do not. Raises KafkaError where nobody does."""
    if not tps:
        return {}, {}
    found = source.list_offsets(dict.fromkeys(tps, spec), partial=True, timeout_ms=_SILENT_MS)
    if not found:
        raise next(iter(found.failed.values()))
    return {tp: result.offset for tp, result in found.items()}, found.failed
