"""All instruments: name, kind, unit, attributes and meaning.

A test compares the table in config/dashboards/README.md with this module.

Names follow OpenTelemetry's semantic conventions for messaging clients if these have a name; ours begin with
``mirror.``. Cardinality is bounded, also for 100,000 partitions: values are by topic, and by partition only for the
worst partitions.
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
        """The name in Prometheus, by OpenTelemetry's conventions."""
        name = self.name.replace(".", "_")
        suffix = {"s": "_seconds", "By": "_bytes", "1": "_ratio", "{record}/s": "_per_second"}.get(self.unit, "")
        return f"{name}{suffix}_total" if self.kind is Kind.COUNTER else f"{name}{suffix}"


_TOPIC: Final = ("flow", "topic")
_PARTITION: Final = ("flow", "topic", "partition")

LAG: Final = Instrument(
    "mirror.lag.records", Kind.GAUGE, "{record}", _TOPIC, "source offsets that are not copied to the target yet"
)
LAG_TIME: Final = Instrument(
    "mirror.lag.time", Kind.GAUGE, "s", _TOPIC, "age of the oldest uncopied record; the maximum over partitions"
)
RATE: Final = Instrument(
    "mirror.copy.rate", Kind.GAUGE, "{record}/s", _TOPIC, "records copied per second, over the last minute"
)
DRAIN: Final = Instrument(
    "mirror.drain.time",
    Kind.GAUGE,
    "s",
    _TOPIC,
    "estimated time until the lag is 0; the maximum over partitions, +Inf if it does not shrink",
)
LOSS: Final = Instrument(
    "mirror.loss.time",
    Kind.GAUGE,
    "s",
    _TOPIC,
    "time until the source's retention deletes uncopied records; minimum over partitions, negative if records are lost",
)
WITHHELD: Final = Instrument(
    "mirror.withheld.records",
    Kind.GAUGE,
    "{record}",
    _TOPIC,
    "source offsets behind open transactions; they cannot be copied yet and are not part of the lag",
)
WITHHELD_TIME: Final = Instrument(
    "mirror.withheld.time",
    Kind.GAUGE,
    "s",
    _TOPIC,
    "age of the oldest open transaction that blocks the copy; the maximum over partitions, 0 if there is none",
)
PARTITION_LAG: Final = Instrument(
    "mirror.partition.lag.records",
    Kind.GAUGE,
    "{record}",
    _PARTITION,
    "mirror.lag.records of each of the worst partitions",
)
PARTITION_LAG_TIME: Final = Instrument(
    "mirror.partition.lag.time", Kind.GAUGE, "s", _PARTITION, "mirror.lag.time of each of the worst partitions"
)
PARTITION_DRAIN: Final = Instrument(
    "mirror.partition.drain.time", Kind.GAUGE, "s", _PARTITION, "mirror.drain.time of each of the worst partitions"
)
PARTITION_LOSS: Final = Instrument(
    "mirror.partition.loss.time", Kind.GAUGE, "s", _PARTITION, "mirror.loss.time of each of the worst partitions"
)
FLOW_STATE: Final = Instrument(
    "mirror.flow.state",
    Kind.GAUGE,
    "{flow}",
    ("flow", "state"),
    "1 for the state of a stream's flow: `preparing`, `running`, `backing off`, `refused` or `held`",
)
PARTITIONS: Final = Instrument(
    "mirror.partitions",
    Kind.GAUGE,
    "{partition}",
    ("flow", "state"),
    "partitions by their state in `mirror status`",
)
GROUPS: Final = Instrument(
    "mirror.groups",
    Kind.GAUGE,
    "{group}",
    ("flow", "state"),
    "consumer groups whose position on the target is that on the source (`in-step`), or why it is not",
)
GROUPS_TIME: Final = Instrument(
    "mirror.groups.time",
    Kind.GAUGE,
    "s",
    ("flow",),
    "for how long a consumer group's position on the target has not been that on the source, or it could not be read,"
    " or all rounds have failed; the maximum over groups",
)
DRIFT: Final = Instrument(
    "mirror.drift",
    Kind.GAUGE,
    "{difference}",
    ("flow", "kind", "reason"),
    "differences between both sides that no round removes by itself, by kind (`configs`, `topics`, and others);"
    " 0 with the reason `none` if the kind is in step",
)
LAST_SYNC: Final = Instrument(
    "mirror.sync.last",
    Kind.GAUGE,
    "s",
    ("flow", "kind"),
    "when the last round ended that has compared everything of a kind, in seconds since 1970",
)
INDEX_SIZE: Final = Instrument(
    "mirror.index.size", Kind.GAUGE, "By", ("flow",), "size on disk of the topic with the flow's offset index"
)
PROVED: Final = Instrument(
    "mirror.verify.last",
    Kind.GAUGE,
    "s",
    ("flow",),
    "when the last `mirror verify` without `--from` or `--check` ended that found everything equal,"
    " in seconds since 1970; 0 if none has",
)
PROVED_TO: Final = Instrument(
    "mirror.verify.offsets",
    Kind.GAUGE,
    "{record}",
    _TOPIC,
    "source offset up to which the last `mirror verify` found the target equal; the sum over partitions",
)
PROOF_DIFFERENCES: Final = Instrument(
    "mirror.verify.differences",
    Kind.GAUGE,
    "{record}",
    ("flow", "kind"),
    "records that differ by the last `mirror verify`; 0 with the kind `none` if none does",
)
UNPROVED: Final = Instrument(
    "mirror.verify.unknown",
    Kind.GAUGE,
    "{partition}",
    ("flow",),
    "partitions that the last `mirror verify` could not compare to their end",
)
INCOMPLETE: Final = Instrument(
    "mirror.verify.incomplete",
    Kind.GAUGE,
    "{partition}",
    ("flow",),
    "partitions of which the target did not have every record that the source had, by the last `mirror verify`",
)
REHEARSED: Final = Instrument(
    "mirror.rehearsal.last", Kind.GAUGE, "s", ("flow",), "time of the last `mirror rehearse`, in seconds since 1970"
)
NOT_READY: Final = Instrument(
    "mirror.rehearsal.not_ready",
    Kind.GAUGE,
    "{blocker}",
    ("flow",),
    "groups and other things that were not ready in the last `mirror rehearse`; 0 if consumers could have switched",
)
RECOVERY_POINT: Final = Instrument(
    "mirror.recovery.point",
    Kind.GAUGE,
    "s",
    ("flow",),
    "age of the oldest record that had not arrived in the last `mirror rehearse`, 0 if all had: the recovery point",
)
RECOVERY_TIME: Final = Instrument(
    "mirror.recovery.time",
    Kind.GAUGE,
    "s",
    ("flow",),
    "how long the rest would have taken in the last `mirror rehearse`, at the rate of earlier runs: the recovery time",
)
SENT: Final = Instrument(
    "messaging.client.sent.messages", Kind.COUNTER, "{message}", _TOPIC, "records committed on the target"
)
BYTES: Final = Instrument(
    "mirror.copied", Kind.COUNTER, "By", _TOPIC, "bytes committed on the target, as sent (compressed)"
)
BATCHES: Final = Instrument(
    "mirror.batches",
    Kind.COUNTER,
    "{batch}",
    ("flow", "path", "reason"),
    "batches committed: passed on as bytes (path shallow), or re-encoded (path deep) for a reason",
)
SKIPPED: Final = Instrument(
    "mirror.skipped",
    Kind.COUNTER,
    "{item}",
    ("flow", "reason"),
    "source batches without records to copy, and records that a policy skipped",
)
GAPS: Final = Instrument(
    "mirror.gaps", Kind.COUNTER, "{record}", ("flow", "kind"), "source offsets that do not, or no longer, exist"
)
TARGET_LOSSES: Final = Instrument(
    "mirror.target_losses",
    Kind.COUNTER,
    "{loss}",
    ("flow", "topic", "kind"),
    "losses of the target that were mended: what it lacked was copied again",
)
EXPIRIES: Final = Instrument(
    "mirror.expiries",
    Kind.COUNTER,
    "{expiry}",
    ("flow", "topic", "phase", "cause"),
    "batches that exceeded delivery.timeout.ms, and partitions that could not begin within it",
)
RETRIES: Final = Instrument(
    "mirror.retries", Kind.COUNTER, "{attempt}", _TOPIC, "attempts of a partition after the first in a run or period"
)
FENCED: Final = Instrument(
    "mirror.fenced", Kind.COUNTER, "{attempt}", ("flow",), "attempts that a newer attempt fenced"
)
OUTCOMES: Final = Instrument("mirror.outcomes", Kind.COUNTER, "{range}", ("flow", "outcome"), "ranges by outcome")
PHASES: Final = Instrument(
    "mirror.phase.time",
    Kind.COUNTER,
    "s",
    ("flow", "phase"),
    "time that partitions spent in each phase: fencing, fetching, waiting for memory, producing, committing and others",
)
PERIODS: Final = Instrument(
    "mirror.periods", Kind.COUNTER, "{period}", ("flow", "outcome"), "periods of streams, and runs, that have ended"
)
LAST_PERIOD: Final = Instrument(
    "mirror.period.last", Kind.GAUGE, "s", ("flow",), "end of the last period, or of the run, in seconds since 1970"
)
PERIOD_DURATION: Final = Instrument(
    "mirror.period.duration",
    Kind.HISTOGRAM,
    "s",
    ("flow",),
    "time from a run's planning, or a period's start, to its results",
)
PLAN_DURATION: Final = Instrument(
    "mirror.plan.duration", Kind.HISTOGRAM, "s", ("flow",), "time to plan a run, or what has changed for a stream"
)
COMMIT_DURATION: Final = Instrument(
    "mirror.commit.duration",
    Kind.HISTOGRAM,
    "s",
    ("flow",),
    "time to commit a transaction or progress, including the wait for acknowledgements of the batches that it covers",
)
REQUEST_DURATION: Final = Instrument(
    "messaging.client.operation.duration",
    Kind.HISTOGRAM,
    "s",
    ("flow", "cluster", "messaging.system", "messaging.operation.name"),
    "time from sending a request to its response, by API; cluster is source or target",
)
REQUESTS_LOST: Final = Instrument(
    "mirror.requests.lost",
    Kind.COUNTER,
    "{request}",
    ("flow", "cluster", "messaging.operation.name"),
    "requests without a response: the connection broke or was closed first",
)
THROTTLED: Final = Instrument(
    "mirror.throttle.time",
    Kind.COUNTER,
    "s",
    ("flow", "cluster", "messaging.operation.name"),
    "time for which brokers throttled the client (KIP-219)",
)
BUFFER: Final = Instrument("mirror.buffer.used", Kind.GAUGE, "By", ("flow", "task"), "peak use of buffer.memory")
BUFFER_SIZE: Final = Instrument("mirror.buffer.size", Kind.GAUGE, "By", ("flow", "task"), "buffer.memory")
IN_FLIGHT: Final = Instrument(
    "mirror.in_flight", Kind.GAUGE, "By", ("flow", "task"), "peak of bytes in flight to the target"
)
HELD: Final = Instrument(
    "mirror.held",
    Kind.GAUGE,
    "By",
    ("flow", "task"),
    "peak of fetched bytes that the task still needs",
)
BUSY: Final = Instrument(
    "mirror.network.busy",
    Kind.GAUGE,
    "1",
    ("flow", "cluster", "task"),
    "share of time that a network thread uses the CPU; near 1 it limits the throughput",
)
DROPPED: Final = Instrument(
    "mirror.telemetry.dropped",
    Kind.COUNTER,
    "{item}",
    ("signal",),
    "spans and exports of metrics that no backend accepted in time",
)

ALL: Final = tuple(value for value in list(globals().values()) if isinstance(value, Instrument))
"""All instruments, in the order above."""

OF_TASKS: Final = frozenset(
    {
        COMMIT_DURATION,
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
