"""What an exporter may know of flows, in order and in trouble."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from mirror.exporter.readings import ClusterReading, FlowReading, after_reading
from mirror.groups.summary import GroupsSummary, HeldGroup
from mirror.relay.progress.control_record import RunControl
from mirror.relay.progress.status_values import RunState
from mirror.spark.ledger.status_table import LastError
from mirror.spark.status.flow_status import FlowStatus, PartitionStatus
from mirror.telemetry.evidence import Evidence, LastVerification
from mirror.telemetry.lag.lags import Lag, LagState, totals

NOW: Final = 1_800_000_000_000
HOUR: Final = 3_600_000
CAUGHT_UP: Final = Lag(0, 0.0, 900.0, 900.0, 0.0, None, LagState.CAUGHT_UP)


def partition(number: int, lag: Lag = CAUGHT_UP, topic: str = "orders", error: str = "") -> PartitionStatus:
    return PartitionStatus(
        topic=topic,
        partition=number,
        target_topic=f"paris.{topic}",
        earliest=0,
        end=1_000,
        progress=1_000 - (lag.records or 0),
        committed_ms=NOW - 4_000,
        lag=lag,
        trouble=LastError(error, NOW - 60_000) if error else None,
    )


def flow(name: str, *partitions: PartitionStatus, run: RunControl | None, state: RunState | None) -> FlowStatus:
    return FlowStatus(
        flow=name,
        source="paris",
        target="berlin",
        time_ms=NOW,
        run=run,
        state=state,
        totals=totals(one.lag for one in partitions),
        partitions=list(partitions),
    )


ALIVE: Final = RunControl(run="r1", host="worker-7", since_ms=NOW - 50 * HOUR, seen_ms=NOW - 3_000)
STREAM: Final = RunState(run="r1", state="running", since_ms=NOW - 50 * HOUR, follows=True)
ENDED: Final = RunState(
    run="r2", state="ended", reason="complete", since_ms=NOW - 20 * 60_000, complete_ms=NOW - 20 * 60_000
)
EXPIRY: Final = "expired (in flight, not enough replicas): NOT_ENOUGH_REPLICAS from broker 3"
DENIED: Final = "TOPIC_AUTHORIZATION_FAILED: not authorized to write to topic paris.payments; <script>alert(1)</script>"
STUCK: Final = Lag(120_000, 4_000.0, 0.0, 30.0, math.inf, 80_000.0, LagState.STUCK)
FAILED: Final = Lag(17, 900.0, 0.0, 0.1, math.inf, None, LagState.FAILED)
GROUPS: Final = GroupsSummary(
    total=40,
    in_step=39,
    by_reason={"unauthorized": 1},
    oldest_ms=HOUR,
    held=(HeldGroup(group="billing", reasons=("unauthorized",), detail="Read on group billing", age_ms=HOUR),),
    time_ms=NOW - 9_000,
)
VERIFIED: Final = Evidence(LastVerification(time_ms=NOW - 6 * HOUR, equal_ms=NOW - 6 * HOUR, outcomes={"equal": 3}))

IN_ORDER: Final = replace(
    flow("orders-paris-berlin", partition(0), partition(1), run=ALIVE, state=STREAM), evidence=VERIFIED
)
BETWEEN_RUNS: Final = flow("hourly-reports", partition(0, topic="reports"), run=None, state=ENDED)
IN_TROUBLE: Final = replace(
    flow(
        "payments-with-a-name-that-is-rather-long-for-a-telephone",
        partition(0),
        partition(3, STUCK, "a.topic.whose.name.is.as.long.as.names.of.topics.become.in.practice.v2", EXPIRY),
        partition(4, FAILED, "payments", DENIED),
        run=ALIVE,
        state=STREAM,
    ),
    groups=GROUPS,
)
GONE: Final = flow("clicks", partition(0), run=replace(ALIVE, seen_ms=NOW - 900_000), state=STREAM)
HELD: Final = flow(
    "audit", partition(0), run=None, state=replace(STREAM, state="held", reason="mirror stop has stopped it")
)
AWAY: Final = {"oslo": "cluster oslo does not answer: oslo-1:9092: connection refused"}


def reading(status: FlowStatus) -> FlowReading:
    return after_reading(FlowReading(flow=status.flow, source=status.source, target=status.target), status)


def lost(status: FlowStatus, age_ms: int) -> FlowReading:
    """A flow whose source has been away for so long."""
    named = replace(status, source="oslo")
    before = replace(reading(replace(named, time_ms=NOW - age_ms)))
    return after_reading(before, replace(named, away=AWAY, partitions=[], totals=totals([])))


FLOWS: Final = [
    reading(IN_ORDER),
    reading(BETWEEN_RUNS),
    reading(IN_TROUBLE),
    reading(GONE),
    reading(HELD),
    lost(replace(IN_ORDER, flow="from-oslo"), 600_000),
    FlowReading(flow="new", source="paris", target="berlin"),
]
CLUSTERS: Final = [
    ClusterReading(name="paris", answers=True, answered_ms=NOW - 2_000),
    ClusterReading(name="berlin", answers=True, answered_ms=NOW - 1_000),
    ClusterReading(name="oslo", answers=False, answered_ms=NOW - 600_000, error=AWAY["oslo"]),
    ClusterReading(name="rome"),
]
