"""What the driver does beside the copies of one flow: heartbeats, consumer groups, configurations and ACLs.

In a stream each runs in rounds in a thread of its own; in a scheduled run there is one round. What the rounds find goes
into the report, the metrics and the status topic.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from mirror.alignment.sync_state import ACLS, CONFIGS, DELETIONS, TOPICS
from mirror.errors import MirrorError
from mirror.groups.summary import summary_of
from mirror.mirrormaker.heartbeats import Heartbeats, HeartbeatWriter, not_written
from mirror.runtime.clock import SystemClock
from mirror.spark.driver.rounds.acl_rounds import AclReports, AclRounds
from mirror.spark.driver.rounds.alignment_rounds import AlignmentReports, AlignmentRounds
from mirror.spark.driver.rounds.group_checkpoints import CheckpointedRounds
from mirror.spark.driver.rounds.group_rounds import GroupReports
from mirror.spark.driver.rounds.periodic_rounds import PeriodicRounds, one_round
from mirror.telemetry.metrics.record_results import record_groups, record_sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from mirror.alignment.permissions.report import AclReport
    from mirror.alignment.report import AlignmentReport
    from mirror.alignment.sync_state import SyncState
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.groups.positions import GroupsReport
    from mirror.groups.summary import GroupsSummary
    from mirror.spark.driver.output.flow_lines import FlowLines
    from mirror.spark.driver.rounds.alignment_rounds import CreatedTopics
    from mirror.spark.driver.rounds.outages import Outages
    from mirror.spark.ledger.obstacles import TargetTopics
    from mirror.spark.ledger.results import FlowReport
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

    def opened(self, created: CreatedTopics) -> Iterator[AbstractContextManager[object]]:
        """Yield the rounds that the flow's configuration asks for; each runs while its block does.

        ``created`` are the topics that preparations have created, for the rounds that bring configurations in step.
        """
        if self._flow.mirrormaker.heartbeats:
            yield Heartbeats(self._heartbeat_writer(), self._lines.warn, outages=self._outages)
        if self._flow.follows_groups:
            yield self._group_rounds()
        if self._flow.aligns_topics:
            yield self._alignment_rounds(created)
        if self._flow.acls.sync:
            yield self._acl_rounds()

    def report_to(self, groups: Callable[[GroupsSummary], None], sync: Callable[[SyncState], None]) -> None:
        """Have what each round finds reported, and what was found until now."""
        self._report_groups, self._report_sync = groups, sync
        self.write_sync()

    # --- before the copies

    def align(self, created: CreatedTopics) -> None:
        """Bring the target topics and their ACLs in step, once; ``created`` as for :meth:`opened`."""
        config, flow = self._config, self._flow
        if flow.aligns_topics:
            self._lines.tell("bringing its topics and their configurations in step")
            found = one_round(
                lambda: AlignmentRounds(config, flow, created, beside_copies=False),
                AlignmentReports(),
                self._lines.warn,
            )
            self.on_alignment(found)
            self._lines.tell(found.line())
        if flow.acls.sync:
            self._lines.tell("bringing the ACLs of its topics in step")
            acls = one_round(lambda: AclRounds(config, flow), AclReports(), self._lines.warn)
            self.on_acls(acls)
            self._lines.tell(acls.line())

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
        found = one_round(lambda: CheckpointedRounds(self._config, self._flow), GroupReports(), self._lines.warn)
        self.on_groups(found)

    # --- a stream

    def _heartbeat_writer(self) -> HeartbeatWriter:
        source_options = self._config.clusters[self._flow.source].client_options()
        return HeartbeatWriter(source_options, source=self._flow.source, target=self._flow.target)

    def _group_rounds(self) -> PeriodicRounds[GroupsReport]:
        return PeriodicRounds(
            lambda: CheckpointedRounds(self._config, self._flow, beside_copies=True),
            self._flow.groups.interval_ms,
            self.on_groups,
            self._lines.warn,
            GroupReports(),
            outages=self._outages,
        )

    def _alignment_rounds(self, created: CreatedTopics) -> PeriodicRounds[AlignmentReport]:
        """Return the rounds that keep configurations in step, after the one of the start."""
        return PeriodicRounds(
            lambda: AlignmentRounds(self._config, self._flow, created, beside_copies=True),
            self._flow.sync_interval_ms,
            self.on_alignment,
            self._lines.warn,
            AlignmentReports(),
            wait_first=True,
            outages=self._outages,
        )

    def _acl_rounds(self) -> PeriodicRounds[AclReport]:
        """Return the rounds that keep ACLs in step, after the one of the start."""
        return PeriodicRounds(
            lambda: AclRounds(self._config, self._flow),
            self._flow.sync_interval_ms,
            self.on_acls,
            self._lines.warn,
            AclReports(said="" if self._report.acls is None else self._report.acls.off),
            wait_first=True,
            outages=self._outages,
        )

    # --- what the rounds report

    def on_prepared(self, targets: TargetTopics) -> None:
        """Keep how many topics cannot be copied."""
        self._on_round(TOPICS, targets.not_in_step(), 0, SystemClock().unix_ms())

    def on_alignment(self, alignment: AlignmentReport) -> None:
        """Keep the report of a round, for the summary, the metrics and the status."""
        self._report.alignment = alignment
        if self._flow.configs == "sync":
            self._on_round(CONFIGS, alignment.by_reason(), len(alignment.problems), alignment.time_ms)
        if self._flow.deletes_topics:
            found = alignment.deletions
            self._on_round(DELETIONS, found.by_reason(), len(found.problems), alignment.time_ms)

    def on_acls(self, acls: AclReport) -> None:
        """Keep the report of a round, as of configurations."""
        self._report.acls = acls
        if not acls.off:
            self._on_round(ACLS, acls.by_reason(), len(acls.problems), acls.time_ms)

    def on_groups(self, groups: GroupsReport) -> None:
        """Keep the report of a round, for the summary, the metrics and the status."""
        self._report.groups = summary = summary_of(groups)
        with self._telemetry.metrics.lock:
            record_groups(self._telemetry.metrics, self._flow.name, summary)
        self._telemetry.export_metrics()
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
