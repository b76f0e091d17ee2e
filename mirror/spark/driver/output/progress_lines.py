"""The texts that show how far a run is: lines for a log, one live line for a terminal. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.filesize import decimal

from mirror.errors import MAX_NAMES_SHOWN, brief
from mirror.relay.model.ranges import Outcome
from mirror.telemetry.lag.lags import LagState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from mirror.relay.model.ranges import RangeResult
    from mirror.spark.ledger.plan import Plan
    from mirror.spark.status.flow_status import FlowStatus
    from mirror.telemetry.lag.lags import LagTotals

FIRST_INTERVAL_MS: Final = 10_000
"""The interval between the first lines of a log, which a user may be watching."""
FIRST_LINES: Final = 6
LATER_INTERVAL_MS: Final = 60_000
"""The interval between the lines after these."""
_TENTH: Final = 10


def stamped(text: str, moment: datetime, *, terminal: bool) -> str:
    """Return ``text`` as a line of the program, with the local time, and the date unless stderr is a terminal."""
    return f"mirror: {moment:{'%H:%M:%S' if terminal else '%Y-%m-%d %H:%M:%S'}} {text}"


class Cadence:
    """Decides when the next progress line of a log is due. Times are monotonic ms."""

    def __init__(self, now: int) -> None:
        self._lines = 0
        self._next_ms = now + FIRST_INTERVAL_MS

    def due(self, now: int) -> bool:
        """Return whether a line is due; if so, schedule the next one."""
        if now < self._next_ms:
            return False
        self._lines += 1
        self._next_ms = now + (FIRST_INTERVAL_MS if self._lines < FIRST_LINES else LATER_INTERVAL_MS)
        return True


def planned(plan: Plan, *, follows: bool) -> str:
    """Describe a plan: ``following 12 partitions of 3 topics``."""
    partitions = len(plan.ranges)
    topics = len({range_.topic for range_ in plan.ranges})
    scope = f"{_counted(partitions, 'partition')} of {_counted(topics, 'topic')}"
    if follows:
        return f"following {scope}"
    records = sum(range_.end - range_.start for range_ in plan.ranges)
    return f"copying {records:,} records in {scope}" if partitions else "nothing to copy"


def copied(done: int, total: int, per_s: float | None) -> str:
    """Describe how far a run with an end is; ``per_s`` is its rate in records per second."""
    share = f" ({100 * done // total}%)" if total else ""
    words = [f"{done:,} of {total:,} records{share}"]
    if per_s:
        words.append(f"{per_second(per_s)} records/s")
        words.append(f"{span((total - done) / per_s)} left")
    return ", ".join(words)


def behind(totals: LagTotals, unit: str = "") -> str:
    """Describe how far a flow is behind: a sum of lags says nothing of the partitions whose lag is not known."""
    count = totals.states.total()
    if totals.unknown and totals.unknown == count:
        return f"how far it is behind is not known ({_counted(count, 'partition')})"
    known = f" in {count - totals.unknown:,} of {count:,} partitions, not known in the others" if totals.unknown else ""
    return f"{totals.records:,} {unit}behind{known}"


def followed(status: FlowStatus) -> str:
    """Describe how far a stream is, from its last status."""
    totals = status.totals
    words = [behind(totals, "records ")]
    if totals.seconds:
        words.append(f"up to {span(totals.seconds)} late")
    if totals.copied_per_s is not None:
        words.append(f"copied {per_second(totals.copied_per_s)}/s, new {per_second(totals.produced_per_s or 0.0)}/s")
    words += [f"{count:,} {state.value}" for state, count in totals.states.items() if state in _SHOWN]
    worst = next((each for each in status.partitions if each.trouble and each.lag.state in _SHOWN), None)
    if worst is not None and worst.trouble is not None:
        words.append(f"{worst.topic}-{worst.partition}: {brief(worst.trouble.line, _MAX_CHARACTERS)}")
    return ", ".join(words)


_MAX_CHARACTERS: Final = 300
"""Of an error in a line."""
_SHOWN: Final = frozenset(LagState) - {LagState.CAUGHT_UP, LagState.CATCHING_UP, LagState.BEHIND}
"""States that may need attention; the other states are only in the sums."""


def per_second(rate: float) -> str:
    """Format a rate: ``0.3``, ``12``, ``1,234``."""
    return f"{rate:,.0f}" if rate >= _TENTH or not rate else f"{rate:.1f}"


def span(seconds: float) -> str:
    """Format a duration: ``12 s``, ``3 min 5 s``, ``2 h 10 min``."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def period_line(results: Sequence[RangeResult]) -> str:
    """Describe the results of a period in one line."""
    records, size = sum(result.records for result in results), sum(result.bytes for result in results)
    seconds = max((result.seconds for result in results), default=0.0)
    copied = f"{records:,} records, {decimal(size)} in {seconds:.1f} s"
    incomplete = [result for result in results if result.outcome is not Outcome.COMPLETE]
    if not incomplete:
        return f"{copied}; {len(results)} partitions"
    shown = [
        f"{result.topic}-{result.partition} {result.outcome.value}" + (f": {result.error}" if result.error else "")
        for result in incomplete[:MAX_NAMES_SHOWN]
    ]
    more = [f"and {len(incomplete) - MAX_NAMES_SHOWN} more"] if len(incomplete) > MAX_NAMES_SHOWN else []
    return f"{copied}; {len(incomplete)} of {len(results)} partitions not complete: {'; '.join([*shown, *more])}"
