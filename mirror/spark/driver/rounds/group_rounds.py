"""How the reports of the rounds of consumer groups are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.groups.positions import GroupsReport
from mirror.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterable


class GroupReports:
    """How the reports of groups are shown."""

    subject = "consumer groups"

    def problems(self, report: GroupsReport) -> Iterable[str]:
        """Return the lines to warn of."""
        return report.problems

    def failed(self, last: GroupsReport | None, problem: str) -> GroupsReport:
        """Return the report of a round that failed: the groups are where they were."""
        return (last or GroupsReport()).failed(problem, SystemClock().unix_ms())
