"""The rounds that keep the ACLs of a flow's target in step, and how their reports are shown."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from mirror.alignment.permissions.report import AclReport
from mirror.runtime.clock import SystemClock
from mirror.spark.preflight.flow_acls import acl_rules, open_acls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.errors import Fenced


class AclRounds:
    """The rounds of one flow; its calls wait for the clusters, use it in one thread."""

    def __init__(self, config: MirrorConfig, flow: FlowConfig) -> None:
        """Raises ConfigError."""
        self._config: Final = config
        self._flow: Final = flow
        with ExitStack() as stack:
            self._alignment: Final = stack.enter_context(open_acls(config, flow))
            self._clients: Final = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clients.close()

    def round(self) -> AclReport:
        """Bring what differs in step. Raises KafkaError, Fenced, ConfigError."""
        self._alignment.rules = acl_rules(self._config, self._flow)
        return self._alignment.round()

    def has_news(self) -> bool:
        """Return False: each round reads everything."""
        return False

    def give_way(self) -> None:
        """Let the next round fence the run that has fenced this one."""
        self._alignment.give_way()

    def fenced(self, error: Fenced) -> AclReport:
        """Return the report of a round that another run of the flow has ended."""
        return AclReports().failed(None, str(error))

    def network_ms(self) -> int:
        """Return the CPU time of the network threads, which all clients of the process share."""
        return self._alignment.network_ms()


class AclReports:
    """How the reports of rounds are shown."""

    subject = "ACLs"

    def __init__(self, said: str = "") -> None:
        """``said``: why there are no ACLs, which was said before the rounds began."""
        self._said: Final = said

    def problems(self, report: AclReport) -> Iterable[str]:
        """Return the lines to warn of."""
        return [line for line in report.warnings() if line != self._said]

    def failed(self, last: AclReport | None, problem: str) -> AclReport:
        """Return the report of a round that failed; what differed before still does."""
        differences = () if last is None else last.held
        return AclReport(differences, (problem,), time_ms=SystemClock().unix_ms())
