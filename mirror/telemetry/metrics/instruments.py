"""What is measured: each instrument's name, kind, unit, attributes and meaning. README's table is made from this one.

Names follow OpenTelemetry's semantic conventions for messaging clients where they have one; ours begin with
``mirror.``. Cardinality is bounded, also for 100,000 partitions: by topic everything, by partition the worst only.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Kind(enum.StrEnum):
    """How an instrument's values come together."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Instrument:
    """``unit`` as UCUM has it; durations are in seconds (s), sizes in bytes (By), annotations in braces."""

    name: str
    kind: Kind
    unit: str
    attributes: tuple[str, ...]
    meaning: str

    @property
    def prometheus(self) -> str:
        """Its name in Prometheus, as OpenTelemetry's conventions for it have it."""
        name = self.name.replace(".", "_")
        suffix = {"s": "_seconds", "By": "_bytes", "1": "_ratio", "{record}/s": "_per_second"}.get(self.unit, "")
        return f"{name}{suffix}_total" if self.kind is Kind.COUNTER else f"{name}{suffix}"


_TOPIC: Final = ("flow", "topic")
_PARTITION: Final = ("flow", "topic", "partition")

LAG: Final = Instrument(
    "mirror.lag.records", Kind.GAUGE, "{record}", _TOPIC, "offsets that the source has and the target has not"
)
LAG_TIME: Final = Instrument(
    "mirror.lag.time", Kind.GAUGE, "s", _TOPIC, "age of the oldest record not copied, the worst partition's"
)
RATE: Final = Instrument(
    "mirror.copy.rate", Kind.GAUGE, "{record}/s", _TOPIC, "records copied a second, over the last minute"
)
DRAIN: Final = Instrument(
    "mirror.drain.time",
    Kind.GAUGE,
    "s",
    _TOPIC,
    "estimated time until the lag is gone, the worst partition's; +Inf where it does not shrink",
)
LOSS: Final = Instrument(
    "mirror.loss.time",
    Kind.GAUGE,
    "s",
    _TOPIC,
    "room before the source's retention takes records that are not copied, the worst partition's; negative: it will",
)
WITHHELD: Final = Instrument(
    "mirror.withheld.records",
    Kind.GAUGE,
    "{record}",
    _TOPIC,
    "offsets that the source has behind open transactions: not in the lag, since they cannot be copied yet",
)
WITHHELD_TIME: Final = Instrument(
    "mirror.withheld.time",
    Kind.GAUGE,
    "s",
    _TOPIC,
    "age of the oldest open transaction that keeps records from being copied, the worst partition's; 0: there is none",
)
PARTITION_LAG: Final = Instrument(
    "mirror.partition.lag.records", Kind.GAUGE, "{record}", _PARTITION, "as mirror.lag.records, of the worst partitions"
)
PARTITION_LAG_TIME: Final = Instrument(
    "mirror.partition.lag.time", Kind.GAUGE, "s", _PARTITION, "as mirror.lag.time, of the worst partitions"
)
PARTITION_DRAIN: Final = Instrument(
    "mirror.partition.drain.time", Kind.GAUGE, "s", _PARTITION, "as mirror.drain.time, of the worst partitions"
)
PARTITION_LOSS: Final = Instrument(
    "mirror.partition.loss.time", Kind.GAUGE, "s", _PARTITION, "as mirror.loss.time, of the worst partitions"
)
PARTITIONS: Final = Instrument(
    "mirror.partitions",
    Kind.GAUGE,
    "{partition}",
    ("flow", "state"),
    "partitions by how they stand, as `mirror status` tells it",
)
SENT: Final = Instrument(
    "messaging.client.sent.messages", Kind.COUNTER, "{message}", _TOPIC, "records committed on the target"
)
BYTES: Final = Instrument("mirror.copied", Kind.COUNTER, "By", _TOPIC, "bytes committed on the target, as on the wire")
BATCHES: Final = Instrument(
    "mirror.batches",
    Kind.COUNTER,
    "{batch}",
    ("flow", "path", "reason"),
    "batches committed: passed on as bytes (path shallow), or encoded anew (deep) and why",
)
SKIPPED: Final = Instrument(
    "mirror.skipped",
    Kind.COUNTER,
    "{item}",
    ("flow", "reason"),
    "source batches that hold nothing to copy, and records that a policy left out",
)
GAPS: Final = Instrument(
    "mirror.gaps", Kind.COUNTER, "{record}", ("flow", "kind"), "source offsets that were not there to be copied"
)
EXPIRIES: Final = Instrument(
    "mirror.expiries",
    Kind.COUNTER,
    "{expiry}",
    ("flow", "topic", "phase", "cause"),
    "batches, and partitions that could not even begin, that outlived delivery.timeout.ms",
)
RETRIES: Final = Instrument(
    "mirror.retries", Kind.COUNTER, "{attempt}", _TOPIC, "attempts after the first, in one epoch of a partition"
)
FENCED: Final = Instrument(
    "mirror.fenced", Kind.COUNTER, "{attempt}", ("flow",), "attempts that another one has shut out"
)
OUTCOMES: Final = Instrument(
    "mirror.outcomes", Kind.COUNTER, "{range}", ("flow", "outcome"), "ranges by how they ended"
)
PHASES: Final = Instrument(
    "mirror.phase.time",
    Kind.COUNTER,
    "s",
    ("flow", "phase"),
    "time that partitions spent: fencing, fetching, waiting for memory, producing, committing, and so on",
)
EPOCHS: Final = Instrument("mirror.epochs", Kind.COUNTER, "{epoch}", ("flow", "outcome"), "epochs that have ended")
LAST_EPOCH: Final = Instrument(
    "mirror.epoch.last", Kind.GAUGE, "s", ("flow",), "when the last epoch ended, in seconds since 1970"
)
EPOCH_DURATION: Final = Instrument(
    "mirror.epoch.duration", Kind.HISTOGRAM, "s", ("flow",), "from an epoch's plan to its results"
)
PLAN_DURATION: Final = Instrument("mirror.plan.duration", Kind.HISTOGRAM, "s", ("flow",), "planning of an epoch")
COMMIT_DURATION: Final = Instrument(
    "mirror.commit.duration",
    Kind.HISTOGRAM,
    "s",
    ("flow",),
    "commits, of transactions or of progress alone, with the wait for what they take along",
)
REQUEST_DURATION: Final = Instrument(
    "messaging.client.operation.duration",
    Kind.HISTOGRAM,
    "s",
    ("flow", "cluster", "messaging.system", "messaging.operation.name"),
    "requests to brokers by API, from sending to the answer; cluster is source or target",
)
REQUESTS_LOST: Final = Instrument(
    "mirror.requests.lost",
    Kind.COUNTER,
    "{request}",
    ("flow", "cluster", "messaging.operation.name"),
    "requests whose connection broke, or was given up, before the answer",
)
THROTTLED: Final = Instrument(
    "mirror.throttle.time",
    Kind.COUNTER,
    "s",
    ("flow", "cluster", "messaging.operation.name"),
    "time that brokers asked to be left alone for (KIP-219)",
)
BUFFER: Final = Instrument(
    "mirror.buffer.used", Kind.GAUGE, "By", ("flow", "task"), "most of buffer.memory that was used at a time"
)
BUFFER_SIZE: Final = Instrument("mirror.buffer.size", Kind.GAUGE, "By", ("flow", "task"), "buffer.memory")
IN_FLIGHT: Final = Instrument(
    "mirror.in_flight", Kind.GAUGE, "By", ("flow", "task"), "most bytes that were under way to the target at a time"
)
HELD: Final = Instrument(
    "mirror.held",
    Kind.GAUGE,
    "By",
    ("flow", "task"),
    "most bytes that were taken from the source and still needed at a time",
)
BUSY: Final = Instrument(
    "mirror.network.busy",
    Kind.GAUGE,
    "1",
    ("flow", "cluster", "task"),
    "share of time that a network thread computes; near 1 it is the limit",
)
DROPPED: Final = Instrument(
    "mirror.telemetry.dropped",
    Kind.COUNTER,
    "{item}",
    ("signal",),
    "spans and metric points that no backend took in time",
)

ALL: Final = tuple(value for value in list(globals().values()) if isinstance(value, Instrument))
"""In the order above."""

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
"""What executors export themselves while they run, where there is a backend; the driver has their sums."""
