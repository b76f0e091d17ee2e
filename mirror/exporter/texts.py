"""What the page says of flows and clusters. Pure."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, Any, Final

from mirror.causes import AWAY
from mirror.client import TopicPartition
from mirror.errors import brief
from mirror.exporter.problems import Problem, problems_of
from mirror.spark.status.condition import Condition, FlowCondition
from mirror.telemetry.lag.lags import LagState, worst_first
from mirror.telemetry.report.advice import Level
from mirror.telemetry.report.format import NONE, counted, moment, span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.exporter.readings import ClusterReading, FlowReading
    from mirror.spark.status.flow_status import FlowStatus, PartitionStatus

_MAX_WORST: Final = 15
_NOT_READ: Final = "not read"
_SPAN_MS: Final = 60_000
_STALE_MS: Final = 120_000
"""A reading that is older is named as old."""
_WORDS: Final = {
    FlowCondition.RUNNING: "runs",
    FlowCondition.PREPARING: "is being prepared",
    FlowCondition.BACKING_OFF: "has failed, and is tried again by itself",
    FlowCondition.REFUSED: "is refused",
    FlowCondition.HELD: "is held",
    FlowCondition.ENDED: "has ended",
    FlowCondition.GONE: "is gone",
    FlowCondition.NONE: "has not run yet",
    FlowCondition.UNKNOWN: "could not be read",
}
_OUTCOMES: Final = ("failed", "expired", "unfinished", "complete", "complete")
"""The report's colours by the level of the worst problem, and without one."""
_RANKS: Final = tuple(Level)
_OF_STATE: Final = {
    LagState.CAUGHT_UP: "complete",
    LagState.CATCHING_UP: "fenced",
    LagState.NOT_BEGUN: "fenced",
    LagState.BEHIND: "unfinished",
    LagState.UNKNOWN: "unfinished",
    LagState.FALLING_BEHIND: "expired",
}


def headline(flows: Sequence[dict[str, Any]]) -> str:
    """Return how many flows need attention."""
    bad = sum(one["rank"] < _RANKS.index(Level.NOTE) for one in flows)
    unread = sum(one["badge"] == _NOT_READ for one in flows)
    if bad:
        return f"{bad:,} of {counted(len(flows), 'flow')} need attention"
    return f"{counted(unread, 'flow')} not read yet" if unread else f"{counted(len(flows), 'flow')} in order"


def flow_texts(reading: FlowReading, now_ms: int) -> dict[str, Any]:
    """Return the values of the template for a flow."""
    status, condition = reading.status, reading.condition
    problems = problems_of(reading, now_ms)
    rank = min((_RANKS.index(one.level) for one in problems), default=len(_RANKS))
    lag = "nothing was read yet" if status is None else _lag_words(status)
    return {
        "name": reading.flow,
        "rank": rank,
        "outcome": _OUTCOMES[rank] if condition is not None or problems else "unfinished",
        "badge": _NOT_READ if condition is None else condition.name.value,
        "short": f"{problems[0].title}; {lag}" if problems else lag,
        "when": f"{reading.source} to {reading.target}; {_as_of(reading, now_ms)}",
        "summary": "Nothing was read yet." if condition is None else f"It {_summary(condition, now_ms)}; {lag}.",
        "findings": [_finding(one) for one in problems],
        "tiles": [] if status is None or condition is None else _tiles(status, condition, now_ms),
        "worst_title": "The worst partitions",
        "worst": [] if status is None else _worst(status),
    }


def _as_of(reading: FlowReading, now_ms: int) -> str:
    if not reading.lags_ms:
        return "its lag was not read yet"
    old = now_ms - reading.lags_ms
    return f"lag as of {moment(reading.lags_ms)}" + (f", {span(old)} ago" if old >= _STALE_MS else "")


def _summary(condition: Condition, now_ms: int) -> str:
    kind = {True: "is a stream that ", False: "is copied by scheduled runs, and ", None: ""}[condition.follows]
    since = (
        ""
        if condition.since_ms is None
        else f", since {moment(condition.since_ms)} ({_ago(condition.since_ms, now_ms)})"
    )
    outcome = f" ({condition.reason})" if condition.name is FlowCondition.ENDED and condition.reason else ""
    return f"{kind}{_WORDS[condition.name]}{outcome}{since}"


def _lag_words(status: FlowStatus) -> str:
    totals = status.totals
    if not status.partitions:
        return "no partition is known"
    if _is_unknown(status):
        return "its lag is not known"
    words = [f"{counted(totals.records, 'record')} behind" if totals.records else "caught up"]
    if totals.seconds:
        words.append(f"up to {span(totals.seconds * 1000)} late")
    if totals.unknown:
        words.append(f"{counted(totals.unknown, 'partition')} unknown")
    return ", ".join(words)


def _is_unknown(status: FlowStatus) -> bool:
    return status.totals.unknown == len(status.partitions)


def _records(status: FlowStatus) -> str:
    return NONE if _is_unknown(status) else f"{status.totals.records:,}"


def _trend(status: FlowStatus) -> str:
    totals = status.totals
    if totals.drain_s is None:
        return "trend not known yet"
    if math.isinf(totals.drain_s):
        return "it grows, or stays"
    return f"caught up in {span(totals.drain_s * 1000)}" if totals.drain_s else "steady"


def _tiles(status: FlowStatus, condition: Condition, now_ms: int) -> list[dict[str, str]]:
    totals, verified, groups = status.totals, status.evidence.verification, status.groups
    success_ms, last = condition.success_ms, max((one.committed_ms or 0 for one in status.partitions), default=0)
    late = NONE if totals.seconds is None else span(totals.seconds * 1000)
    tiles = [
        ("lag", _records(status), f"records; late: {late}; {_trend(status)}"),
        ("last success", "none", "that is known")
        if success_ms is None
        else ("last success", _ago(success_ms, now_ms), moment(success_ms)),
        ("last commit", _ago(last, now_ms) if last else "never", "of progress in some partition"),
    ]
    if totals.loss_s is not None and not math.isinf(totals.loss_s):
        loss = span(totals.loss_s * 1000) if totals.loss_s > 0 else "now"
        tiles.append(("until records are lost", loss, "by the source's retention, in the worst partition"))
    tiles.append(
        ("partitions", f"{len(status.partitions):,}", ", ".join(f"{n:,} {s.value}" for s, n in totals.states.items()))
    )
    if verified is not None:
        equal = f"found equal {_ago(verified.equal_ms, now_ms)}" if verified.equal_ms else "never found equal"
        tiles.append(("last verification", _ago(verified.time_ms, now_ms), equal))
    else:
        tiles.append(("last verification", "none", "mirror verify compares both sides"))
    if groups is not None:
        more = f"{groups.counts()}, {_ago(groups.time_ms, now_ms)}"
        tiles.append(("consumer groups", f"{groups.in_step:,} of {groups.total:,}", more))
    return [{"name": name, "value": value, "more": more} for name, value, more in tiles]


def _worst(status: FlowStatus) -> list[dict[str, str]]:
    def key(one: PartitionStatus) -> tuple[int, float, int, TopicPartition]:
        return worst_first(TopicPartition(one.topic, one.partition), one.lag)

    behind = [one for one in status.partitions if one.lag.state is not LagState.CAUGHT_UP]
    return [
        {
            "outcome": _OF_STATE.get(one.lag.state, "failed"),
            "state": one.lag.state.value,
            "name": f"{one.topic}-{one.partition}",
            "words": "lag unknown" if one.lag.records is None else counted(one.lag.records, "record"),
        }
        for one in heapq.nsmallest(_MAX_WORST, behind, key=key)
    ]


def _finding(problem: Problem) -> dict[str, Any]:
    return {
        "level": problem.level.value,
        "title": problem.title,
        "meaning": brief(problem.meaning),
        "steps": problem.steps,
        "members": [{"name": name, "line": brief(line)} for name, line in problem.members],
        "more": f"{problem.more:,}" if problem.more else "",
    }


def cluster_texts(reading: ClusterReading, now_ms: int) -> dict[str, str]:
    """Return the values of the template for a cluster."""
    if reading.answers is None:
        return {"name": reading.name, "level": "note", "sign": "?", "words": "was not asked yet", "error": ""}
    if reading.answers:
        words = f"answers, {_ago(reading.answered_ms, now_ms)}"
        return {"name": reading.name, "level": "good", "sign": "✓", "words": words, "error": ""}
    last = f"; it answered {_ago(reading.answered_ms, now_ms)}" if reading.answered_ms else ""
    error = f"{brief(reading.error)}; {AWAY.remedy}"
    return {"name": reading.name, "level": "critical", "sign": "✕", "words": f"does not answer{last}", "error": error}


def _ago(time_ms: int, now_ms: int) -> str:
    passed_ms = max(0, now_ms - time_ms)
    return f"{passed_ms // 1000} s ago" if passed_ms < _SPAN_MS else f"{span(passed_ms)} ago"
