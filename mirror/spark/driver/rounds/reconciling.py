"""The rounds that keep topics and ACLs of a flow's target in step; and how these and those of groups are shown."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from mirror.alignment.differences import KindReport
from mirror.alignment.inventory import TIMEOUT_MS
from mirror.alignment.sync_state import CONFIGS
from mirror.closing import Closing
from mirror.errors import printable
from mirror.groups.positions import GroupsReport
from mirror.runtime.clock import SystemClock
from mirror.spark.clusters import Clusters
from mirror.spark.driver.rounds.periodic_rounds import ROUND_SHARE, RoundKind
from mirror.spark.preflight.flow_reconciler import WORDS, FlowReconciler, KindReports, fenced_in, kinds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.errors import Fenced

Created = dict[str, dict[str, str]]
"""The configurations that topics were created with, by target topic."""
TARGET: Final = "topics and ACLs"
"""The rounds about all but groups, as the beginning of a warning."""
GROUPS: Final = "consumer groups"
_NEWS: Final = 16
"""What groups have committed is seen so many times in an interval, so that it is on the target within one."""
SHARE_OF_CHANGES: Final = 2
"""Rounds that ask only for groups that have committed take at most half a core: they cost what these commits cost. That
holds for one of all groups, too, if such rounds follow: a tenth of a core would hold these up for long."""


class CreatedTopics:
    """The topics that preparations have created on the target, until a round takes them. Thread-safe."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._of_flow: Final[dict[str, Created]] = {}

    def add(self, flow: str, created: Mapping[str, dict[str, str]]) -> None:
        """Remember topics that were created for a flow."""
        with self._lock:
            self._of_flow.setdefault(flow, {}).update(created)

    def of(self, flow: str) -> Created:
        """Return what was created for a flow."""
        with self._lock:
            return dict(self._of_flow.get(flow, {}))

    def forget(self, flow: str, topics: Iterable[str]) -> None:
        """Forget topics that a round has taken."""
        with self._lock:
            for topic in topics:
                self._of_flow.get(flow, {}).pop(topic, None)


class Reconciling(Closing):
    """The rounds about topics and ACLs of one flow. Its calls wait for the clusters; use it in one thread."""

    def __init__(self, config: MirrorConfig, flow: FlowConfig, created: CreatedTopics, *, beside_copies: bool) -> None:
        """Raises ConfigError."""
        self._flow: Final = flow
        self._created: Final = created
        self._beside_copies: Final = beside_copies
        self._last: KindReports = {}
        with ExitStack() as stack:
            sides = stack.enter_context(Clusters(config, TIMEOUT_MS)).of(flow)
            self._reconciler: Final = stack.enter_context(FlowReconciler(config, flow))
            self._clients: Final = stack.pop_all()
        self._observe: Final = sides.again
        self._admins: Final = [side.admin for side in sides]

    def close(self) -> None:
        self._clients.close()

    def round(self, *, last: bool = False) -> KindReports:  # noqa: ARG002 - each round leaves nothing to a later one
        """Bring what differs in step; what keeps a kind from it is in its report. Raises Fenced."""
        created = self._created.of(self._flow.name)
        beside = self._beside_copies
        found = self._last = self._reconciler.round(self._observe(), beside_copies=beside, created=created)
        if CONFIGS in found and found[CONFIGS].error is None:
            self._created.forget(self._flow.name, created)
        if (fenced := fenced_in(found)) is not None:
            raise fenced
        return found

    def has_news(self) -> bool:
        """Return False: everything waits for the next round."""
        return False

    def fenced(self, _: Fenced) -> KindReports:
        """Return the reports of the round that another owner has ended."""
        return self._last

    def network_ms(self) -> int:
        """Return the CPU time of the network threads, which all clients of the process share."""
        return sum(admin.network().busy_ms for admin in self._admins)


def target_rounds(
    flow: FlowConfig, on_report: Callable[[KindReports], None], said: Collection[str] = (), *, wait_first: bool = False
) -> RoundKind[KindReports]:
    """Return the rounds about all but groups; ``said`` are lines that were printed before, and are not again."""

    def problems(report: KindReports) -> list[str]:
        lines = (line for found in report.values() for line in found.warnings())
        return [line for line in dict.fromkeys(lines) if line not in said]

    return RoundKind(
        subject=TARGET,
        interval_ms=flow.sync_interval_ms,
        on_report=on_report,
        problems=problems,
        failed=lambda last, problem: {kind: _failed(last or {}, kind, problem) for kind in kinds_of(flow)},
        errors=lambda report: {
            printable(line): one.error for one in report.values() if one.error is not None for line in one.problems
        },
        wait_first=wait_first,
    )


def group_rounds(flow: FlowConfig, on_report: Callable[[GroupsReport], None]) -> RoundKind[GroupsReport]:
    """Return the rounds about groups; after one that failed, the groups are where they were."""
    return RoundKind(
        subject=GROUPS,
        interval_ms=flow.groups.interval_ms,
        on_report=on_report,
        problems=lambda report: report.problems,
        failed=lambda last, problem: (last or GroupsReport()).failed(problem, SystemClock().unix_ms()),
        news_ms=flow.groups.interval_ms // _NEWS,
        share=lambda report: SHARE_OF_CHANGES if report.is_watching else ROUND_SHARE,
        # Checkpoints alone have no group of this flow on the target that a hold could fence.
        ends_with_hold=flow.groups.sync,
    )


def _failed(last: Mapping[str, KindReport], kind: str, problem: str) -> KindReport:
    before = last.get(kind, KindReport(words=WORDS[kind]))
    return before.failed(problem, SystemClock().unix_ms())
