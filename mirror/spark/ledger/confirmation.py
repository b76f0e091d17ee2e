"""What runs have last confirmed to be on the target: all that a failover may have lost is later than that. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition

if TYPE_CHECKING:
    from mirror.relay.progress.open_transactions import OpenTransaction
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


def copied_by(lag: Lag, withheld: OpenTransaction | None, began_ms: int, before_ms: int = 0) -> int:
    """Return by when all of an observed partition is on the target (ms since 1970); 0 if that is not known.

    Its reading began at ``began_ms``; ``before_ms`` is what an earlier one of the same run has confirmed. Records
    behind an open transaction are acknowledged, but not copied, and none of them is older than its start.
    """
    if lag.records == 0:
        by_ms = began_ms
    elif lag.records is None or lag.seconds is None:
        by_ms = 0
    else:
        by_ms = max(0, began_ms - round(lag.seconds * 1000))
    return by_ms if withheld is None else min(by_ms, max(withheld.start_ms or 0, before_ms))


# Invariant: What is confirmed was observed in the logs: it began to be read at that time, and the progress was at its
#   end, or not yet as old. What a reading has not seen keeps the time that was confirmed before.
# Test: tests/spark/ledger/test_confirmation.py::test_all_that_was_committed_before_a_reading_of_the_ends_is_confirmed
# Test: tests/spark/ledger/test_confirmation.py::test_what_a_reading_does_not_see_keeps_what_was_confirmed_before
def confirmed(
    copied: Mapping[TopicPartition, int],
    began_ms: int,
    before: Confirmed | None = None,
    known: Iterable[TopicPartition] = (),
) -> Confirmed:
    """Return what a reading confirms that began at ``began_ms`` (since 1970).

    ``copied`` are the source partitions that it has seen, with what :func:`copied_by` returns; ``known`` are those that
    earlier readings have seen, and ``before`` is what these have confirmed.
    """
    seen = {str(tp): by_ms for tp, by_ms in copied.items()}
    earlier = {} if before is None else dict(before.behind)
    missed = {str(tp): 0 if before is None else before.of(tp) for tp in known}
    since = {name: by_ms for name, by_ms in (earlier | missed | seen).items() if name not in seen or by_ms < began_ms}
    earliest = sorted(since.items(), key=lambda one: one[1])
    rest = [time_ms for _, time_ms in earliest[_NAMED:]]
    return Confirmed(since_ms=min([began_ms, *rest]), behind=dict(earliest[:_NAMED]))
