"""What a person reads while a run goes on, and how often: lines for a log, one line for a terminal. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.telemetry.lag.lags import LagState

if TYPE_CHECKING:
    from datetime import datetime

    from mirror.spark.ledger.plan import Plan
    from mirror.spark.status.flow_status import FlowStatus

SOON_MS: Final = 10_000
"""Between two lines of a log at first: what has just begun is watched."""
SOON: Final = 6
LATER_MS: Final = 60_000
"""Between two lines after that."""
_TENTH: Final = 10


def stamped(text: str, moment: datetime, *, terminal: bool) -> str:
    """``text`` as a line of the program, with its local time; in a log, which is read another day, with its date."""
    return f"mirror: {moment:{'%H:%M:%S' if terminal else '%Y-%m-%d %H:%M:%S'}} {text}"


class Cadence:
    """When the next line about how far a flow is, is due in a log. Times are monotonic ms."""

    def __init__(self, now: int) -> None:
        self._told = 0
        self._next_ms = now + SOON_MS

    def due(self, now: int) -> bool:
        """Whether one is due; from then on the next one is waited for."""
        if now < self._next_ms:
            return False
        self._told += 1
        self._next_ms = now + (SOON_MS if self._told < SOON else LATER_MS)
        return True


def planned(plan: Plan, *, follows: bool) -> str:
    """What a plan is about: ``following 12 partitions of 3 topics``."""
    partitions = len(plan.ranges)
    topics = len({one.topic for one in plan.ranges})
    what = f"{_counted(partitions, 'partition')} of {_counted(topics, 'topic')}"
    if follows:
        return f"following {what}"
    records = sum(one.end - one.start for one in plan.ranges)
    return f"copying {records:,} records in {what}" if partitions else "nothing to copy"


def copied(done: int, total: int, per_s: float | None) -> str:
    """How far a run is that has an end."""
    share = f" ({100 * done // total}%)" if total else ""
    words = [f"{done:,} of {total:,} records{share}"]
    if per_s:
        words.append(f"{per_second(per_s)} records/s")
        words.append(f"{_span((total - done) / per_s)} left")
    return ", ".join(words)


def followed(status: FlowStatus) -> str:
    """How far a stream is, by what its clusters last answered."""
    of = status.totals
    words = [f"{of.records:,} records behind"]
    if of.seconds:
        words.append(f"up to {_span(of.seconds)} late")
    if of.copied_per_s is not None:
        words.append(f"copied {per_second(of.copied_per_s)}/s, new {per_second(of.produced_per_s or 0.0)}/s")
    words += [f"{count:,} {state.value}" for state, count in of.states.items() if state in _SHOWN]
    return ", ".join(words)


_SHOWN: Final = frozenset(LagState) - {LagState.CAUGHT_UP, LagState.CATCHING_UP, LagState.BEHIND}
"""What somebody may have to see to; the rest is in the sums."""


def per_second(rate: float) -> str:
    """A rate: ``0.3``, ``12``, ``1,234``."""
    return f"{rate:,.0f}" if rate >= _TENTH or not rate else f"{rate:.1f}"


def _span(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
