"""Lines about partitions that begin to fail, and are copied again, as the tasks of a live job report them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.errors import brief, named
from mirror.relay.model.ranges import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.client import TopicPartition
    from mirror.relay.model.reports import PartitionReport

_FAILING: Final = frozenset({Outcome.FAILED.value, Outcome.EXPIRED.value})


class FailureLines:
    """Says each failure once, until its partition is copied again."""

    def __init__(self, run: str) -> None:
        self._run: Final = run
        self._failing: Final[dict[TopicPartition, str]] = {}
        self._again: dict[str, None] = {}

    def failed(self, reports: Iterable[PartitionReport]) -> list[str]:
        """Return a line for each error with which partitions begin to fail. Of other runs, nothing."""
        failed: dict[str, dict[str, None]] = {}
        for report in reports:
            if report.run != self._run:
                continue
            name = f"{report.result.topic}-{report.result.partition}"
            if report.state not in _FAILING:
                if self._failing.pop(report.target, None) is not None:
                    self._again[name] = None
            elif report.target not in self._failing:
                self._again.pop(name, None)
                self._failing[report.target] = name
                failed.setdefault(brief(report.result.error or "no reason is known"), {})[name] = None
        return [f"{named('partition', list(names))} not copied: {error}" for error, names in failed.items()]

    def recovered(self) -> list[str]:
        """Return the line about the partitions that are copied again, since the last call."""
        again, self._again = list(self._again), {}
        return [f"{named('partition', again)} copied again"] if again else []
