"""All instruments: name, kind, unit, attributes and meaning.

Tests compare the table in config/dashboards/README.md with this module, and have ``promtool`` check the names.

Requests have the name and the attributes of OpenTelemetry's semantic conventions for messaging clients. What is copied
has ours, which begin with ``mirror.``: the conventions count what a producer attempts to send, and a record is copied
once it is committed. Points in time end in ``.timestamp``. Cardinality is bounded, also for 100,000 partitions: values
are by topic, and by partition only for the worst partitions.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Kind(enum.StrEnum):
    """How an instrument aggregates its values."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Instrument:
    """An instrument; ``meaning`` is its published description."""

    name: str
    kind: Kind
    unit: str
    """By UCUM: seconds (s) for durations, bytes (By) for sizes, annotations in braces."""
    attributes: tuple[str, ...]
    meaning: str

    @property
    def prometheus(self) -> str:
        """The name in Prometheus, by OpenTelemetry's conventions: the unit is not repeated."""
        name = self.name.replace(".", "_")
        suffix = {"s": "_seconds", "By": "_bytes", "1": "_ratio", "{record}/s": "_per_second"}.get(self.unit, "")
        name = name.removesuffix(suffix) + suffix
        return f"{name}_total" if self.kind is Kind.COUNTER else name


def _gauge(name: str, unit: str, attributes: tuple[str, ...], meaning: str) -> Instrument:
    return Instrument(name, Kind.GAUGE, unit, attributes, meaning)


def _counter(name: str, unit: str, attributes: tuple[str, ...], meaning: str) -> Instrument:
    return Instrument(name, Kind.COUNTER, unit, attributes, meaning)


def _histogram(name: str, attributes: tuple[str, ...], meaning: str) -> Instrument:
    return Instrument(name, Kind.HISTOGRAM, "s", attributes, meaning)


_FLOW: Final = ("flow", "source", "target")
"""The flow, and the aliases of its clusters, which :meth:`.metric_store.MetricStore.describe_flow` knows."""
_TASK: Final = (*_FLOW, "task")
_TOPIC: Final = (*_FLOW, "topic")
_PARTITION: Final = (*_TOPIC, "partition")
_REQUEST: Final = (*_FLOW, "side", "messaging.system", "messaging.operation.name")

FLOW_INFO: Final = _gauge(
    "mirror.flow.info",
    "{flow}",
    (*_FLOW, "delivery", "exactly_once_by", "naming", "version"),
    "1, with the settings of a flow and the version of the application that copies it",
)

LAG: Final = _gauge("mirror.lag.records", "{record}", _TOPIC, "source offsets that are not copied to the target yet")
LAG_TIME: Final = _gauge(
    "mirror.lag.time", "s", _TOPIC, "age of the oldest uncopied record; the maximum over partitions"
)
RATE: Final = _gauge("mirror.copy.rate", "{record}/s", _TOPIC, "records copied per second, over the last minute")
DRAIN: Final = _gauge(
    "mirror.drain.time",
    "s",
    _TOPIC,
    "estimated time until the lag is 0; the maximum over partitions, +Inf if it does not shrink",
)
LOSS: Final = _gauge(
    "mirror.loss.time",
    "s",
    _TOPIC,
    "time until the source's retention deletes uncopied records; minimum over partitions, negative if records are lost",
)
WITHHELD: Final = _gauge(
    "mirror.withheld.records",
    "{record}",
    _TOPIC,
    "source offsets behind open transactions; they cannot be copied yet and are not part of the lag",
)
WITHHELD_TIME: Final = _gauge(
    "mirror.withheld.time",
    "s",
    _TOPIC,
    "age of the oldest open transaction that blocks the copy; the maximum over partitions, 0 if there is none",
)
PARTITION_LAG: Final = _gauge(
    "mirror.partition.lag.records", "{record}", _PARTITION, "mirror.lag.records of each of the worst partitions"
)
PARTITION_LAG_TIME: Final = _gauge(
    "mirror.partition.lag.time", "s", _PARTITION, "mirror.lag.time of each of the worst partitions"
)
PARTITION_DRAIN: Final = _gauge(
    "mirror.partition.drain.time", "s", _PARTITION, "mirror.drain.time of each of the worst partitions"
)
PARTITION_LOSS: Final = _gauge(
    "mirror.partition.loss.time", "s", _PARTITION, "mirror.loss.time of each of the worst partitions"
)
FLOW_STATE: Final = _gauge(
    "mirror.flow.state",
    "{flow}",
    (*_FLOW, "state"),
    "1 for the state of a stream's flow: `preparing`, `running`, `backing off`, `refused` or `held`; `mirror exporter`"
    " has also scheduled runs, and `ended`, `gone`, `none` and `unknown`",
)
PARTITIONS: Final = _gauge(
    "mirror.partitions", "{partition}", (*_FLOW, "state"), "partitions by their state in `mirror status`"
)
GROUPS: Final = _gauge(
    "mirror.groups",
    "{group}",
    (*_FLOW, "state"),
    "consumer groups whose position on the target is that on the source (`in-step`), or why it is not",
)
GROUPS_TIME: Final = _gauge(
    "mirror.group.behind.time",
    "s",
    _FLOW,
    "for how long a consumer group's position on the target has not been that on the source, or it could not be read,"
    " or all rounds have failed; the maximum over groups",
)
DRIFT: Final = _gauge(
    "mirror.drift",
    "{difference}",
    (*_FLOW, "kind", "reason"),
    "differences between both sides that no round removes by itself, by kind (`configs`, `topics`, and others);"
    " 0 with the reason `none` if the kind is in step",
)
LAST_SYNC: Final = _gauge(
    "mirror.sync.timestamp",
    "s",
    (*_FLOW, "kind"),
    "when the last round ended that has compared everything of a kind, in seconds since 1970",
)
INDEX_SIZE: Final = _gauge("mirror.index.size", "By", _FLOW, "size on disk of the topic with the flow's offset index")
PROVED: Final = _gauge(
    "mirror.verify.equal.timestamp",
    "s",
    _FLOW,
    "when the last `mirror verify` without `--from` or `--check` ended that found everything equal,"
    " in seconds since 1970; 0 if none has",
)
PROVED_TO: Final = _gauge(
    "mirror.verify.offsets",
    "{record}",
    _TOPIC,
    "source offset up to which the last `mirror verify` found the target equal; the sum over partitions",
)
PROOF_DIFFERENCES: Final = _gauge(
    "mirror.verify.differences",
    "{record}",
    (*_FLOW, "kind"),
    "records that differ by the last `mirror verify`; 0 with the kind `none` if none does",
)
UNPROVED: Final = _gauge(
    "mirror.verify.unknown.partitions",
    "{partition}",
    _FLOW,
    "partitions that the last `mirror verify` could not compare to their end",
)
INCOMPLETE: Final = _gauge(
    "mirror.verify.incomplete.partitions",
    "{partition}",
    _FLOW,
    "partitions of which the target did not have every record that the source had, by the last `mirror verify`",
)
REHEARSED: Final = _gauge(
    "mirror.rehearsal.timestamp", "s", _FLOW, "time of the last `mirror rehearse`, in seconds since 1970"
)
NOT_READY: Final = _gauge(
    "mirror.rehearsal.blockers",
    "{blocker}",
    _FLOW,
    "groups and other things that were not ready in the last `mirror rehearse`; 0 if consumers could have switched",
)
RECOVERY_POINT: Final = _gauge(
    "mirror.recovery.point",
    "s",
    _FLOW,
    "age of the oldest record that had not arrived in the last `mirror rehearse`, 0 if all had: the recovery point",
)
RECOVERY_TIME: Final = _gauge(
    "mirror.recovery.time",
    "s",
    _FLOW,
    "how long the rest would have taken in the last `mirror rehearse`, at the rate of earlier runs: the recovery time",
)
RECORDS: Final = _counter("mirror.copied.records", "{record}", _TOPIC, "records committed on the target")
BYTES: Final = _counter("mirror.copied.bytes", "By", _TOPIC, "bytes committed on the target, as sent (compressed)")
BATCHES: Final = _counter(
    "mirror.copied.batches",
    "{batch}",
    (*_FLOW, "path", "reason"),
    "batches committed: passed on as bytes (path shallow), or re-encoded (path deep) for a reason",
)
SKIPPED: Final = _counter(
    "mirror.skipped",
    "{item}",
    (*_FLOW, "reason"),
    "source batches without records to copy, and records that a policy skipped",
)
ASIDE: Final = _counter(
    "mirror.aside",
    "{record}",
    (*_TOPIC, "reason"),
    "records that the target does not take, and batches that cannot be decoded, which went to the flow's aside topic",
)
GAPS: Final = _counter(
    "mirror.gap.offsets", "{offset}", (*_FLOW, "kind"), "source offsets that do not, or no longer, exist"
)
TARGET_LOSSES: Final = _counter(
    "mirror.target_losses",
    "{loss}",
    (*_TOPIC, "kind"),
    "losses of the target that were mended: what it lacked was copied again",
)
EXPIRIES: Final = _counter(
    "mirror.expiries",
    "{expiry}",
    (*_TOPIC, "phase", "cause"),
    "batches that exceeded delivery.timeout.ms, and partitions that could not begin within it",
)
RETRIES: Final = _counter(
    "mirror.retries", "{attempt}", _TOPIC, "attempts of a partition after the first in a run or period"
)
FAILURES: Final = _counter(
    "mirror.failures",
    "{attempt}",
    (*_TOPIC, "outcome"),
    "attempts of a partition that expired, failed, or were fenced by a newer one",
)
OUTCOMES: Final = _counter("mirror.outcomes", "{range}", (*_FLOW, "outcome"), "ranges by outcome")
PHASES: Final = _counter(
    "mirror.phase.time",
    "s",
    (*_FLOW, "phase"),
    "time that partitions spent in each phase: fencing, fetching, waiting for memory, producing, committing and others",
)
PERIODS: Final = _counter(
    "mirror.periods", "{period}", (*_FLOW, "outcome"), "periods of streams, and runs, that have ended"
)
LAST_PERIOD: Final = _gauge(
    "mirror.period.end.timestamp", "s", _FLOW, "end of the last period, or of the run, in seconds since 1970"
)
PERIOD_DURATION: Final = _histogram(
    "mirror.period.duration", _FLOW, "time from a run's planning, or a period's start, to its results"
)
PLAN_DURATION: Final = _histogram("mirror.plan.duration", _FLOW, "time to plan a run, or what has changed for a stream")
COMMIT_DURATION: Final = _histogram(
    "mirror.commit.duration",
    _FLOW,
    "time to commit a transaction or progress, including the wait for acknowledgements of the batches that it covers",
)
LATENCY: Final = _histogram(
    "mirror.replication.latency",
    _FLOW,
    "time from a record's append to the source (its timestamp) to the target's acknowledgement; the timestamp of a"
    " batch's latest record counts for all of them",
)
REQUEST_DURATION: Final = _histogram(
    "messaging.client.operation.duration",
    _REQUEST,
    "time from sending a request to its response, by API; side is source or target",
)
REQUESTS_LOST: Final = _counter(
    "mirror.requests.lost",
    "{request}",
    _REQUEST,
    "requests without a response: the connection broke or was closed first",
)
THROTTLED: Final = _counter(
    "mirror.throttle.time",
    "s",
    _REQUEST,
    "time for which brokers throttled the client (KIP-219)",
)
BUFFER: Final = _gauge("mirror.buffer.usage", "By", _TASK, "peak use of buffer.memory")
BUFFER_SIZE: Final = _gauge("mirror.buffer.limit", "By", _TASK, "buffer.memory")
IN_FLIGHT: Final = _gauge("mirror.in_flight", "By", _TASK, "peak of bytes in flight to the target")
HELD: Final = _gauge("mirror.held", "By", _TASK, "peak of fetched bytes that the task still needs")
BUSY: Final = _gauge(
    "mirror.network.utilization",
    "1",
    (*_FLOW, "side", "task"),
    "share of time that a network thread uses the CPU; near 1 it limits the throughput",
)
DROPPED: Final = _counter(
    "mirror.telemetry.dropped",
    "{item}",
    ("signal",),
    "spans, metrics and lineage that no backend accepted in time",
)
CLUSTER_UP: Final = _gauge(
    "mirror.cluster.up", "{cluster}", ("cluster",), "1 if the cluster answers `mirror exporter`, 0 if it does not"
)
CLUSTER_ANSWER: Final = _gauge(
    "mirror.cluster.answer.timestamp",
    "s",
    ("cluster",),
    "when the cluster last answered `mirror exporter`, in seconds since 1970",
)
FLOW_READ: Final = _gauge(
    "mirror.flow.read.timestamp",
    "s",
    _FLOW,
    "as of when `mirror exporter` has the lags, in seconds since 1970: both clusters answered",
)
FLOW_SUCCESS: Final = _gauge(
    "mirror.flow.success.timestamp",
    "s",
    _FLOW,
    "when the last complete run ended, in seconds since 1970, or the last sign of life of the stream while it was"
    " running; none if neither is known",
)

ALL: Final = tuple(value for value in list(globals().values()) if isinstance(value, Instrument))
"""All instruments, in the order above."""

OF_TASKS: Final = frozenset(
    {
        COMMIT_DURATION,
        LATENCY,
        REQUEST_DURATION,
        REQUESTS_LOST,
        THROTTLED,
        BUFFER,
        BUFFER_SIZE,
        IN_FLIGHT,
        HELD,
        BUSY,
    }
)
"""Instruments that executors export while they run, if there is a backend. The driver has their sums."""
