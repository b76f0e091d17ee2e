"""What runs have last confirmed to be on the target: all that a failover may have lost is later than that. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition

if TYPE_CHECKING:
    from mirror.telemetry.lag.lags import Lag

_NAMED: Final = 1_000
"""So many partitions that are behind are named, those that are furthest behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """All that the source had committed by ``since_ms`` (ms since 1970) is on the target, but in some partitions."""

    since_ms: int
    behind: Mapping[str, int] = field(default_factory=dict)
    """By source partition as ``topic-0``, since when it has records that were not copied; 0: that is not known."""

    def of(self, tp: TopicPartition) -> int:
        """Return the time by which all of a source partition is on the target; 0 if that is not known."""
        return min(self.since_ms, self.behind.get(str(tp), self.since_ms))


# Invariant: What is confirmed was observed in the logs: it began to be read at that time, and the progress was at its
#   end, or not yet as old.
# Test: tests/spark/ledger/test_confirmation.py::test_all_that_was_committed_before_a_reading_of_the_ends_is_confirmed
def confirmed(lags: Iterable[tuple[TopicPartition, Lag]], began_ms: int) -> Confirmed:
    """Return what lags confirm whose reading began at ``began_ms`` (since 1970), of source partitions."""
    since = {
        str(tp): 0 if lag.records is None or lag.seconds is None else max(0, began_ms - round(lag.seconds * 1000))
        for tp, lag in lags
        if lag.records != 0
    }
    earliest = sorted(since.items(), key=lambda one: one[1])
    rest = [time_ms for _, time_ms in earliest[_NAMED:]]
    return Confirmed(since_ms=min([began_ms, *rest]), behind=dict(earliest[:_NAMED]))
