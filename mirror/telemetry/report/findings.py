"""Finds the problems of a run's partitions: one finding per problem, with its advice, the worst first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mirror.relay.batches.reencode_decision import SkipReason
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.model.timeline import CopyPhase, EventName
from mirror.relay.progress.gaps import GapKind
from mirror.relay.progress.open_transactions import OpenTransaction
from mirror.relay.progress.target_loss import loss_text
from mirror.telemetry.report import advice
from mirror.telemetry.report.advice import ADVICE, Advice, Level

LOSSES: Final = frozenset({GapKind.RETENTION, GapKind.TRUNCATED, GapKind.RECREATED})
"""Gaps that are lost records. The others, such as compaction, are normal."""
NOTHING_TO_COPY: Final = frozenset(SkipReason)
"""Reasons to skip a source batch that has no records to copy."""

_THROTTLED_SHARE: Final = 0.1
_THROTTLED_MS: Final = 1_000
_FLAPPING_CHANGES: Final = 4
_BEHIND_MS: Final = 5 * 60_000
_WORST_FIRST: Final = list(Level)


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that partitions have in common."""

    key: str
    advice: Advice
    members: list[tuple[int, str]]
    """The partitions' indexes in the flow's list, each with a line about this partition."""


def find(flow: str, partitions: Sequence[RangeResult]) -> list[Finding]:
    """Return all findings of a flow, the worst first, and of equal severity the most frequent first."""
    found: dict[str, Finding] = {}
    for index, result in enumerate(partitions):
        for key, problem, line in _problems(result):
            found.setdefault(key, Finding(key, problem, [])).members.append((index, line))
    ranked = sorted(
        found.values(), key=lambda finding: (_WORST_FIRST.index(finding.advice.level), -len(finding.members))
    )
    return [
        replace(finding, advice=_filled_in(flow, [partitions[index] for index, _ in finding.members], finding.advice))
        for finding in ranked
    ]


def unhealthy_partitions(findings: Iterable[Finding]) -> set[int]:
    """Return the indexes of the partitions that need attention."""
    return {index for finding in findings if finding.advice.level is not Level.NOTE for index, _ in finding.members}


def active_ms(result: RangeResult) -> int:
    """Return how long the copy was active: its time without the time in which it had caught up."""
    phases = result.timeline.phases if result.timeline is not None else {}
    return sum(ms for phase, ms in phases.items() if phase != CopyPhase.IDLE) if phases else int(result.seconds * 1000)


def slowest(partitions: Sequence[RangeResult], limit: int) -> list[int]:
    """Return the indexes of the ``limit`` partitions that were active longest, the longest first.

    Partitions that had nothing to copy are left out.
    """
    active = [
        (active_ms(result), index)
        for index, result in enumerate(partitions)
        if result.bytes or result.outcome != "complete"
    ]
    return [index for ms, index in sorted(active, key=lambda entry: (-entry[0], entry[1]))[:limit] if ms > 0]


def _problems(result: RangeResult) -> Iterator[tuple[str, Advice, str]]:
    """Return key, advice and line of each problem of one partition."""
    error = result.error or ""
    match result.outcome:
        case Outcome.EXPIRED:
            cause = str(result.expiries[-1].get("cause")) if result.expiries else ""
            yield f"expired {cause}", advice.expired(cause), error
        case Outcome.UNFINISHED if result.stuck_since_ms is not None:
            yield _known("stuck", error)
        case Outcome.FAILED | Outcome.UNFINISHED | Outcome.FENCED:
            yield _known(advice.key_of(result.outcome.value, error), error)
        case Outcome.COMPLETE:
            pass
    if result.outcome is not Outcome.EXPIRED and result.expiries:
        cause = str(result.expiries[-1].get("cause"))
        yield f"recovered {cause}", advice.recovered(cause), _expiries(result.expiries)
    yield from _missing_records(result)
    if result.withheld:
        transaction = OpenTransaction(**result.withheld)
        yield "withheld", advice.withheld(transaction), transaction.summary()
    yield from _slowdowns(result)


def _known(key: str, line: str) -> tuple[str, Advice, str]:
    return key, ADVICE[key], line


def _missing_records(result: RangeResult) -> Iterator[tuple[str, Advice, str]]:
    lost = {kind: count for kind, count in result.gaps.items() if kind in LOSSES}
    if lost:
        yield _known("gaps skipped", _counts(lost, "offsets"))
    if result.target_losses:
        yield _known("target losses mended", loss_text(result.target_losses[-1]))
    skipped = {reason: count for reason, count in result.skipped.items() if reason not in NOTHING_TO_COPY}
    if skipped:
        yield _known("records skipped", _counts(skipped, "records"))
    if result.aside:
        yield _known("records aside", _counts(result.aside, "records"))


def _slowdowns(result: RangeResult) -> Iterator[tuple[str, Advice, str]]:
    timeline = result.timeline
    if timeline is None:
        return
    ms = max(1, active_ms(result))
    if timeline.throttled_ms >= max(_THROTTLED_MS, _THROTTLED_SHARE * ms):
        yield _known("throttled", f"waited {timeline.throttled_ms / 1000:,.1f} s of {ms / 1000:,.1f} s")
    changes = sum(event.get("name") == EventName.LEADER_CHANGE for event in timeline.events)
    if changes >= _FLAPPING_CHANGES:
        yield _known("flapping", f"{changes} changes")
    late_ms = timeline.late_after_ms or 0
    if result.outcome is Outcome.COMPLETE and timeline.lag_after and late_ms >= _BEHIND_MS:
        behind = f"{timeline.lag_after:,} records behind, the oldest for {late_ms // 60_000:,} min"
        yield _known("behind", behind)


def _counts(counts: Mapping[str, int], noun: str) -> str:
    return ", ".join(f"{count:,} {noun} ({reason})" for reason, count in sorted(counts.items()))


def _expiries(expiries: Sequence[Mapping[str, Any]]) -> str:
    times = "once" if len(expiries) == 1 else f"{len(expiries)} times"
    causes = dict.fromkeys(
        f"{expiry.get('cause', 'unknown')} ({expiry.get('phase', 'unknown')})" for expiry in expiries
    )
    return f"expired {times}: {', '.join(causes)}"


def _filled_in(flow: str, members: Sequence[RangeResult], general: Advice) -> Advice:
    """Return the advice with the names of the flow and of its first affected partition, so that commands can be run."""
    first = members[0]
    found = advice.filled_in(general, flow, first.topic, first.target_topic, first.partition)
    maybe_written = any(expiry.get("may_have_been_written") for result in members for expiry in result.expiries)
    remark = advice.MAYBE_WRITTEN if maybe_written and general.level is Level.SERIOUS else ""
    return replace(found, remark=remark)
