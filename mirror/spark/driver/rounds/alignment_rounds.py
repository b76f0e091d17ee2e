"""The rounds that keep a flow's target topics in step, and how their reports are shown."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from mirror.alignment.report import AlignmentReport
from mirror.runtime.clock import SystemClock
from mirror.spark.preflight.flow_alignment import open_rounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.errors import Fenced

Created = dict[str, dict[str, str]]
"""The configurations that topics were created with, by target topic."""


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


class AlignmentRounds:
    """The rounds of one flow; its calls wait for the clusters, use it in one thread."""

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        created: CreatedTopics,
        *,
        beside_copies: bool,
    ) -> None:
        self._flow: Final = flow
        self._created: Final = created
        self._beside_copies: Final = beside_copies
        with ExitStack() as stack:
            self._rounds: Final = stack.enter_context(open_rounds(config, flow))
            self._clients: Final = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clients.close()

    def round(self) -> AlignmentReport:
        """Bring what differs in step. Raises KafkaError, Fenced, ConfigError."""
        flow = self._flow
        created = self._created.of(flow.name)
        report = self._rounds.round(flow, beside_copies=self._beside_copies, created=created)
        self._created.forget(flow.name, created)
        return report

    def has_news(self) -> bool:
        """Return False: each round reads everything."""
        return False

    def give_way(self) -> None:
        """Let the next round fence the run that has fenced this one."""
        self._rounds.give_way()

    def fenced(self, error: Fenced) -> AlignmentReport:
        """Return the report of a round that another run of the flow has ended."""
        return AlignmentReports().failed(None, str(error))

    def network_ms(self) -> int:
        """Return the CPU time of the network threads, which all clients of the process share."""
        return self._rounds.network_ms()


class AlignmentReports:
    """How the reports of rounds are shown."""

    subject = "topics and configurations"

    def problems(self, report: AlignmentReport) -> Iterable[str]:
        """Return the lines to warn of."""
        return report.warnings()

    def failed(self, last: AlignmentReport | None, problem: str) -> AlignmentReport:
        """Return the report of a round that failed; what differed before still does."""
        differences = () if last is None else last.held
        return AlignmentReport(differences, (problem,), time_ms=SystemClock().unix_ms())
