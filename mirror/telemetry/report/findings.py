"""Which partitions are sick, with what, and what to do about it: alike ones together, the worst first. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mirror.relay.batches.classify import Skip
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.model.timeline import CopyPhase, EventName
from mirror.relay.progress.gaps import GapKind
from mirror.relay.progress.open_transactions import OpenTransaction
from mirror.telemetry.report import advice
from mirror.telemetry.report.advice import Advice, AdviceStep, Level
from mirror.telemetry.report.failures import FAILED

LOSSES: Final = frozenset({GapKind.RETENTION, GapKind.TRUNCATED, GapKind.RECREATED})
"""The gaps that are a loss; the others are a log's own holes."""
NOTHING_TO_COPY: Final = frozenset(Skip)

_THROTTLED_SHARE: Final = 0.1
_THROTTLED_MS: Final = 1_000
_FLAPPING: Final = 4
_BEHIND_MS: Final = 5 * 60_000
_WORST_FIRST: Final = list(Level)
_PLACEHOLDER: Final = re.compile(r"\b(FLOW|TOPIC|NUMBER)\b")


@dataclass(frozen=True, slots=True)
class Finding:
    """What partitions have in common; ``members`` are their places in the flow's list, each with a line of its own."""

    key: str
    advice: Advice
    members: list[tuple[int, str]]


def find(flow: str, partitions: Sequence[RangeResult]) -> list[Finding]:
    """All findings of a flow, the worst first, and of those the most frequent."""
    found: dict[str, Finding] = {}
    for place, one in enumerate(partitions):
        for key, each, line in _of(one):
            found.setdefault(key, Finding(key, each, [])).members.append((place, line))
    ranked = sorted(found.values(), key=lambda each: (_WORST_FIRST.index(each.advice.level), -len(each.members)))
    return [
        replace(each, advice=_for(flow, [partitions[place] for place, _ in each.members], each.advice))
        for each in ranked
    ]


def active_ms(one: RangeResult) -> int:
    """How long it was busy: its time without what it spent caught up."""
    phases = one.story.phases if one.story is not None else {}
    return sum(ms for phase, ms in phases.items() if phase != CopyPhase.IDLE) if phases else int(one.seconds * 1000)


def slowest(partitions: Sequence[RangeResult], most: int) -> list[int]:
    """Places of those that were busy longest, the longest first; none of those with next to nothing to do."""
    busy = [(active_ms(one), place) for place, one in enumerate(partitions) if one.bytes or one.outcome != "complete"]
    return [place for ms, place in sorted(busy, key=lambda each: (-each[0], each[1]))[:most] if ms > 0]


def _of(one: RangeResult) -> Iterator[tuple[str, Advice, str]]:
    """Key, advice and line of all that is wrong with one partition."""
    error = one.error or ""
    match one.outcome:
        case Outcome.EXPIRED:
            cause = str(one.expiries[-1].get("cause")) if one.expiries else ""
            yield f"expired {cause}", advice.EXPIRED.get(cause, advice.EXPIRED_OTHERWISE), error
        case Outcome.FAILED:
            yield *_by_words(error, FAILED, "failed", advice.FAILED_OTHERWISE), error
        case Outcome.UNFINISHED if one.stuck_since_ms is not None:
            yield "stuck", advice.STUCK, error
        case Outcome.UNFINISHED:
            yield *_by_words(error, advice.UNFINISHED, "unfinished", advice.UNFINISHED_OTHERWISE), error
        case Outcome.FENCED:
            yield "fenced", advice.FENCED, error
        case _:
            pass
    if one.outcome is not Outcome.EXPIRED and one.expiries:
        cause = str(one.expiries[-1].get("cause"))
        yield f"recovered {cause}", advice.recovered(cause), _expiries(one.expiries)
    yield from _missing(one)
    if one.withheld:
        found = OpenTransaction(**one.withheld)
        yield "withheld", advice.withheld(found), found.summary()
    yield from _troubled(one)


def _by_words(error: str, known: Mapping[str, tuple[str, Advice]], name: str, otherwise: Advice) -> tuple[str, Advice]:
    for key, (pattern, each) in known.items():
        if re.search(pattern, error):
            return f"{name} {key}", each
    return name, otherwise


def _missing(one: RangeResult) -> Iterator[tuple[str, Advice, str]]:
    lost = {kind: count for kind, count in one.gaps.items() if kind in LOSSES}
    if lost:
        yield "passed over", advice.PASSED_OVER, _counted(lost, "offsets")
    left_out = {why: count for why, count in one.skipped.items() if why not in NOTHING_TO_COPY}
    if left_out:
        yield "left out", advice.LEFT_OUT, _counted(left_out, "records")


def _troubled(one: RangeResult) -> Iterator[tuple[str, Advice, str]]:
    story = one.story
    if story is None:
        return
    ms = max(1, active_ms(one))
    if story.throttled_ms >= max(_THROTTLED_MS, _THROTTLED_SHARE * ms):
        yield "throttled", advice.THROTTLED, f"waited {story.throttled_ms / 1000:,.1f} s of {ms / 1000:,.1f} s"
    changes = sum(event.get("name") == EventName.LEADER_CHANGE for event in story.events)
    if changes >= _FLAPPING:
        yield "flapping", advice.FLAPPING, f"{changes} changes"
    late_ms = story.late_after_ms or 0
    if one.outcome is Outcome.COMPLETE and story.lag_after and late_ms >= _BEHIND_MS:
        line = f"{story.lag_after:,} records behind, the oldest for {late_ms // 60_000:,} min"
        yield "behind", advice.BEHIND, line


def _counted(counts: Mapping[str, int], what: str) -> str:
    return ", ".join(f"{count:,} {what} ({why})" for why, count in sorted(counts.items()))


def _expiries(expiries: Sequence[Mapping[str, Any]]) -> str:
    times = "once" if len(expiries) == 1 else f"{len(expiries)} times"
    causes = dict.fromkeys(f"{each.get('cause', 'unknown')} ({each.get('phase', 'unknown')})" for each in expiries)
    return f"expired {times}: {', '.join(causes)}"


def _for(flow: str, members: Sequence[RangeResult], general: Advice) -> Advice:
    """The advice with the names of this flow and of its first sick partition: commands are to be copied."""
    one = members[0]

    def filled(text: str) -> str:
        topic = one.topic if "$SOURCE" in text else one.target_topic
        names = {"FLOW": flow, "TOPIC": shlex.quote(topic), "NUMBER": str(one.partition)}
        return _PLACEHOLDER.sub(lambda found: names[found[0]], text)

    steps = tuple(AdviceStep(filled(step.text), filled(step.command)) for step in general.steps)
    in_doubt = any(each.get("may_have_been_written") for one in members for each in one.expiries)
    remark = advice.IN_DOUBT if in_doubt and general.level is Level.SERIOUS else ""
    return replace(general, meaning=filled(general.meaning), steps=steps, remark=remark)
