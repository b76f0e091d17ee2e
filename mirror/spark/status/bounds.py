"""Whether flows are as late, and as long without a success, as a probe allows.

A single reading knows no rates, and so no lag in seconds. But the source finds by its time index which records are
older than a bound: one of them behind the progress breaks it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.spark.status.condition import FlowCondition, condition_of
from mirror.telemetry.report.format import counted, span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.client import Admin
    from mirror.spark.status.flow_status import FlowStatus

_DURATION: Final = re.compile(r"(\d{1,9})(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_CALL_TIMEOUT_MS: Final = 10_000


def duration_ms(text: str) -> int:
    """Return a duration such as ``500ms``, ``60s``, ``90m``, ``2h`` or ``1d`` in ms. Raises ValueError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError("must be a whole number with its unit, such as 500ms, 60s, 90m, 2h or 1d")
    return int(found[1]) * _UNITS_MS[found[2]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a probe allows, in ms; None: no bound."""

    max_lag_ms: int | None = None
    """The age of the oldest record that is not copied."""
    max_age_ms: int | None = None
    """How long ago the flow's last success is (:attr:`.condition.Condition.success_ms`)."""

    @property
    def is_set(self) -> bool:
        """Whether there is one."""
        return self.max_lag_ms is not None or self.max_age_ms is not None

    def broken_by(self, status: FlowStatus, source: Admin) -> str:
        """Return which bounds a flow breaks, in one line; empty if none.

        A bound that cannot be checked is broken. Raises KafkaError if the source does not answer.
        """
        lines = [self._age(status)]
        if self.max_lag_ms is not None:
            lines.append(self._lag(status, source, self.max_lag_ms))
        return "; ".join(filter(None, lines))

    def _age(self, status: FlowStatus) -> str:
        if self.max_age_ms is None:
            return ""
        condition = condition_of(status)
        age_ms = None if condition.success_ms is None else status.time_ms - condition.success_ms
        if age_ms is not None and age_ms <= self.max_age_ms:
            return ""
        when = "not known" if age_ms is None else f"{span(age_ms)} ago, the bound is {span(self.max_age_ms)}"
        is_named = condition.name not in {FlowCondition.ENDED, FlowCondition.NONE}
        why = "" if condition.is_complete else condition.reason or (condition.name.value if is_named else "")
        return f"its last success is {when}{f' ({why})' if why else ''}"

    def _lag(self, status: FlowStatus, source: Admin, max_lag_ms: int) -> str:
        unknown = [one for one in status.partitions if one.lag.records is None or one.end is None]
        behind = {
            TopicPartition(one.topic, one.partition): (one.end - one.lag.records, one.lag.records)
            for one in status.partitions
            if one.end is not None and one.lag.records
        }
        young = _offsets_at(source, behind, max(0, status.time_ms - max_lag_ms))
        late = {tp: records for tp, (progress, records) in behind.items() if is_late(progress, young.get(tp))}
        lines = []
        if late:
            worst = max(late, key=lambda tp: late[tp])
            lines.append(
                f"{counted(sum(late.values()), 'record')} of {counted(len(late), 'partition')} to copy, the oldest ones"
                f" older than {span(max_lag_ms)}; most in {worst.topic}-{worst.partition}"
            )
        if unknown:
            lines.append(
                f"the lag of {counted(len(unknown), 'partition')} is not known, such as"
                f" {unknown[0].topic}-{unknown[0].partition} ({unknown[0].lag.state.value})"
            )
        return "; ".join(lines)


def is_late(progress: int, young: int | None) -> bool:
    """Whether a record from ``progress`` on is older than a time.

    ``young`` is the first offset of a record that is not; -1: there is none. None: it is not known.
    """
    return young is None or young < 0 or progress < young


def _offsets_at(
    source: Admin, behind: Mapping[TopicPartition, tuple[int, int]], time_ms: int
) -> Mapping[TopicPartition, int]:
    """Return the first offset of a record that is not older than ``time_ms``, of partitions whose leader answers."""
    if not behind:
        return {}
    found = source.list_offsets(dict.fromkeys(behind, time_ms), partial=True, timeout_ms=_CALL_TIMEOUT_MS)
    return {tp: one.offset for tp, one in found.items()}
