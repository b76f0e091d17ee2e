"""What the driver does beside the copies of one flow: heartbeats, consumer groups, configurations and ACLs.

Groups of a stream have rounds in one thread, topics and ACLs in another: what hangs in one does not delay the other.
In a scheduled run there is one round of each. What they find goes into the report, the metrics and the status topic.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from mirror.alignment.sync_state import TOPICS
from mirror.errors import MirrorError
from mirror.groups.summary import summary_of
from mirror.mirrormaker.heartbeats import Heartbeats, HeartbeatWriter, not_written
from mirror.runtime.clock import SystemClock
from mirror.spark.driver.rounds.group_checkpoints import CheckpointedRounds
from mirror.spark.driver.rounds.periodic_rounds import PeriodicRounds, one_round
from mirror.spark.driver.rounds.reconciling import Reconciling, group_rounds, target_rounds
from mirror.spark.preflight.flow_reconciler import kinds_of
from mirror.telemetry.metrics.record_results import record_groups, record_sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mirror.alignment.sync_state import SyncState
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.groups.positions import GroupsReport
    from mirror.groups.summary import GroupsSummary
    from mirror.spark.driver.output.flow_lines import FlowLines
    from mirror.spark.driver.rounds.monitoring import Monitor
    from mirror.spark.driver.rounds.outages import Outages
    from mirror.spark.driver.rounds.reconciling import CreatedTopics
    from mirror.spark.ledger.results import FlowReport
    from mirror.spark.ledger.topic_obstacles import TargetTopics
    from mirror.spark.preflight.flow_reconciler import KindReports
    from mirror.telemetry.run_telemetry import RunTelemetry


class FlowRounds:
    """The rounds of one flow. What reports them is called from the threads of the rounds."""

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        report: FlowReport,
        telemetry: RunTelemetry,
        *,
        lines: FlowLines,
        outages: Outages,
    ) -> None:
        self._config: Final = config
        self._flow: Final = flow
        self._report: Final = report
        self._report_groups: Callable[[GroupsSummary], None] = lambda _: None
        self._report_sync: Callable[[SyncState], None] = lambda _: None
        self._telemetry: Final = telemetry
        self._lines: Final = lines
        self._outages: Final = outages
        self._sync_lock: Final = threading.Lock()

    def opened(self, created: CreatedTopics) -> Iterator[Monitor]:
        """Yield the rounds that the flow's configuration asks for; each runs while its block does.

        ``created`` are the topics that preparations have created, for the rounds that bring configurations in step.
        """
        if self._flow.mirrormaker.heartbeats:
            yield Heartbeats(self._heartbeat_writer(), self._lines.warn, outages=self._outages)
        if kinds_of(self._flow):
            said = [one.off for one in self._report.kinds.values() if one.off]
            kind = target_rounds(self._flow, self.on_reconciled, said, wait_first=True)
            reconciling = partial(Reconciling, self._config, self._flow, created, beside_copies=True)
            yield PeriodicRounds(reconciling, kind, self._lines.warn, outages=self._outages)
        if self._flow.follows_groups:  # their last round has the positions that were committed last
            groups = partial(CheckpointedRounds, self._config, self._flow, beside_copies=True)
            yield PeriodicRounds(
                groups, group_rounds(self._flow, self.on_groups), self._lines.warn, outages=self._outages
            )

    def report_to(self, groups: Callable[[GroupsSummary], None], sync: Callable[[SyncState], None]) -> None:
        """Have what each round finds reported, and what was found until now."""
        self._report_groups, self._report_sync = groups, sync
        self.write_sync()

    # --- before the copies

    def align(self, created: CreatedTopics) -> None:
        """Bring the target's topics and ACLs in step, once; ``created`` as for :meth:`opened`."""
        flow = self._flow
        if kinds_of(flow):
            self._lines.tell("bringing its topics and their configurations and ACLs in step")
            reconciling = partial(Reconciling, self._config, flow, created, beside_copies=False)
            one_round(reconciling, target_rounds(flow, self.on_reconciled), self._lines.warn)
            for one in self._report.kinds.values():
                self._lines.tell(one.line())

    # --- a scheduled run

    def write_heartbeat(self) -> None:
        """Write a heartbeat to the source, which this run copies."""
        try:
            with self._heartbeat_writer() as writer:
                writer.write()
        except MirrorError as error:
            self._lines.warn(not_written(error))

    def bring_groups(self) -> None:
        """Bring the positions of consumer groups to the target, once."""
        if not self._flow.follows_groups:
            return
        act = "committing" if self._flow.groups.sync else "translating"
        self._lines.tell(f"{act} the positions of consumer groups")
        groups = partial(CheckpointedRounds, self._config, self._flow)
        one_round(groups, group_rounds(self._flow, self.on_groups), self._lines.warn)

    # --- a stream

    def _heartbeat_writer(self) -> HeartbeatWriter:
        source_options = self._config.clusters[self._flow.source].client_options()
        return HeartbeatWriter(source_options, source=self._flow.source, target=self._flow.target)

    # --- what the rounds report

    def on_prepared(self, targets: TargetTopics) -> None:
        """Keep how many topics cannot be copied."""
        self._on_round(TOPICS, targets.not_in_step(), 0, SystemClock().unix_ms())

    def on_reconciled(self, found: KindReports) -> None:
        """Keep the reports of a round, for the summary, the metrics and the status."""
        self._report.kinds = found
        for kind, one in found.items():
            if not one.off:
                self._on_round(kind, one.by_reason(), len(one.problems), one.time_ms)

    def on_groups(self, groups: GroupsReport) -> None:
        """Keep the report of a round, for the summary, the metrics and the status."""
        self._report.groups = summary = summary_of(groups)
        with self._telemetry.metrics.lock:
            record_groups(self._telemetry.metrics, self._flow.name, summary)
        self._report_groups(summary)

    def write_sync(self) -> None:
        """Keep what is in step as the report has it now: the records that are left out have changed."""
        with self._sync_lock:
            self._write_sync()

    def _on_round(self, kind: str, not_in_step: Mapping[str, int], problems: int, time_ms: int) -> None:
        """Keep what is not in step after a round of one kind. Called from several threads."""
        with self._sync_lock:
            self._report.sync = self._report.sync.after(kind, not_in_step, problems, time_ms)
            self._write_sync()

    def _write_sync(self) -> None:
        state = self._report.sync_state
        with self._telemetry.metrics.lock:
            record_sync(self._telemetry.metrics, self._flow.name, state)
        self._report_sync(state)
