"""The rounds that keep a flow's target in step: configurations, topics and ACLs; and how their reports are shown."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from mirror.alignment import acls, topic_configs, topic_deletions
from mirror.alignment.differences import KindReport
from mirror.alignment.inventory import TIMEOUT_MS
from mirror.alignment.sync_state import ACLS, CONFIGS, DELETIONS
from mirror.errors import Fenced, KafkaError, is_outage
from mirror.runtime.clock import SystemClock
from mirror.spark.clusters import Clusters
from mirror.spark.preflight.flow_reconciler import FlowReconciler

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirror.config.models import FlowConfig, MirrorConfig

Created = dict[str, dict[str, str]]
"""The configurations that topics were created with, by target topic."""
KindReports = dict[str, KindReport]
"""By the kind's name in the state of a flow."""
_WORDS: Final = {CONFIGS: topic_configs.WORDS, DELETIONS: topic_deletions.WORDS, ACLS: acls.WORDS}


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


def kinds_of(flow: FlowConfig) -> list[str]:
    """Return the kinds that ``flow`` keeps in step, in the order of a round."""
    wanted = {CONFIGS: flow.configs == "sync", DELETIONS: flow.deletes_topics, ACLS: flow.acls.sync}
    return [kind for kind, is_kept in wanted.items() if is_kept]


class Reconciling:
    """The rounds of one flow; its calls wait for the clusters, use it in one thread."""

    def __init__(self, config: MirrorConfig, flow: FlowConfig, created: CreatedTopics, *, beside_copies: bool) -> None:
        """Raises ConfigError."""
        self._flow: Final = flow
        self._created: Final = created
        self._beside_copies: Final = beside_copies
        self._last: KindReports = {}
        with ExitStack() as stack:
            self._sides: Final = stack.enter_context(Clusters(config, TIMEOUT_MS)).of(flow)
            self._reconciler: Final = stack.enter_context(FlowReconciler(config, flow))
            self._clients: Final = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clients.close()

    def round(self) -> KindReports:
        """Bring what differs in step. What concerns one kind alone is in its report. Raises KafkaError, Fenced."""
        sides, spent = self._sides.again(), 0
        for kind in kinds_of(self._flow):
            try:
                if kind == CONFIGS:
                    created = self._created.of(self._flow.name)
                    found = self._reconciler.configs(sides, beside_copies=self._beside_copies, created=created)
                    self._created.forget(self._flow.name, created)
                    spent = found.spent
                elif kind == DELETIONS:
                    found = self._reconciler.deletions(sides, spent=spent)
                else:
                    found = self._reconciler.acls(sides)
            except Fenced:
                raise
            except KafkaError as error:
                if is_outage(error):
                    raise
                found = _failed(self._last, kind, str(error))
            self._last[kind] = found
        return dict(self._last)

    def has_news(self) -> bool:
        """Return False: each round reads everything."""
        return False

    def give_way(self) -> None:
        """Let the next round fence the owner that has fenced this one."""
        self._reconciler.give_way()

    def fenced(self, error: Fenced) -> KindReports:
        """Return the report of a round that another owner has ended."""
        return {kind: _failed(self._last, kind, str(error)) for kind in kinds_of(self._flow)}

    def network_ms(self) -> int:
        """Return the CPU time of the network threads, which all clients of the process share."""
        return sum(side.admin.network().busy_ms for side in self._sides)


class ReconcilingReports:
    """How the reports of rounds are shown."""

    subject = "topics and ACLs"

    def __init__(self, flow: FlowConfig, said: Collection[str] = ()) -> None:
        """``said``: lines that were printed before the rounds began, and are not printed again."""
        self._flow: Final = flow
        self._said: Final = frozenset(said)

    def problems(self, report: KindReports) -> Iterable[str]:
        """Return the lines to warn of."""
        lines = (line for found in report.values() for line in found.warnings())
        return [line for line in dict.fromkeys(lines) if line not in self._said]

    def failed(self, last: KindReports | None, problem: str) -> KindReports:
        """Return the report of a round that failed; what differed before still does."""
        return {kind: _failed(last or {}, kind, problem) for kind in kinds_of(self._flow)}


def _failed(last: Mapping[str, KindReport], kind: str, problem: str) -> KindReport:
    before = last.get(kind, KindReport(words=_WORDS[kind]))
    return before.failed(problem, SystemClock().unix_ms())
