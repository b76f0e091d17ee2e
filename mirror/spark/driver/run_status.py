"""What a run of a flow reads of its status topic, and writes there.

Only :meth:`RunStatus.read` can fail the run, if it cannot do without what the topic has.

One thread and one client of the driver follow the topic, for all of it that needs to know::

    status topic ──RunStatus──► news: the job's results, assignments, failure lines
                             └► table: planning, lags, `failed` states, evidence for the report and the metrics
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.errors import AuthorizationFailed, KafkaError, KafkaTimeout, MirrorError, is_outage
from mirror.relay.model.ranges import Outcome
from mirror.relay.model.reports import NO_TASK, PartitionReport
from mirror.relay.progress import status_values
from mirror.relay.progress.flow_topic import status_topic_of
from mirror.relay.progress.status_topic import STATUS_MS, StatusFollower, StatusWriter
from mirror.relay.progress.status_values import RunState, StatusKind
from mirror.runtime.clock import SystemClock
from mirror.spark.ledger.confirmation import confirmed, copied_by
from mirror.spark.ledger.copy_rate import faster_rate
from mirror.spark.ledger.initial_partitions import Selection
from mirror.spark.ledger.partition_health import unhealthy_after
from mirror.spark.ledger.status_table import (
    Reported,
    StatusTable,
    error_records,
    health_records,
    initial_records,
    obstacle_records,
    outdated_records,
    partitions_of,
    turn_records,
)
from mirror.spark.ledger.topic_obstacles import TargetTopics
from mirror.spark.planning.limits import has_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mirror.alignment.sync_state import SyncState
    from mirror.config.models import FlowConfig
    from mirror.groups.summary import GroupsSummary
    from mirror.relay.model.ranges import RangeResult
    from mirror.relay.progress.status_topic import StatusNews
    from mirror.spark.driver.rounds.outages import Outages
    from mirror.spark.ledger.attempt_results import AttemptResult
    from mirror.spark.ledger.initial_partitions import InitialPartitions
    from mirror.spark.ledger.plan import Plan
    from mirror.spark.ledger.status_table import Records
    from mirror.spark.status.flow_status import FlowStatus
    from mirror.telemetry.task_report import TaskReport

_log: Final = logging.getLogger(__name__)

_FOLLOW_S: Final = 1.0
"""How often the topic is read: what several tasks report within a second is taken together."""
_WAIT_MS: Final = 5_000
"""How long a reading waits for something new: an idle flow would have 4 requests a second otherwise."""
_FIRST_READ_S: Final = 2 * STATUS_MS / 1000
"""So long a run waits at most for what earlier ones have reported."""
_NEEDED_READ_S: Final = 60.0
"""The same for a run that needs it. A reading in which nothing arrives ends after :data:`STATUS_MS`."""
_CLOSE_MS: Final = 2_000
"""A run that ends was usually asked to by a signal, and has little time left for all of its end."""
_SUBJECT: Final = "what the tasks report"


# Invariant: What a flow's runs know of it is in the status topic, not in the report folder: any host continues what
#   another one has stored.
# Test: tests/spark/driver/test_run_status.py::test_one_client_of_the_driver_follows_the_topic_for_all_that_need_to_know
# Test: tests/spark/driver/
#   test_run_status.py::test_a_verification_on_any_host_reaches_the_next_run_and_the_next_verification
# Test: tests/spark/ledger/test_status_table.py::test_lost_report_folders_take_no_partition_s_turns
# Test: tests/spark/ledger/test_full_disk.py::test_results_that_cannot_be_written_name_the_file
class RunStatus:
    """The status of one flow in one run. Times are ms since 1970. May be used by several threads."""

    def __init__(
        self,
        target_options: Mapping[str, object],
        flow: FlowConfig,
        run: str,
        say: Callable[[str], None],
        outages: Outages | None = None,
        was_warned_of: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """``say`` receives a line about what cannot be read or written, unless ``outages`` reports it.

        ``was_warned_of`` is whether the flow's checks have warned of a topic: they say what to grant.
        """
        self.on_news: Callable[[StatusNews], None] = lambda _: None
        """Called in the thread that follows the topic, with what is new, after each reading."""
        self._options: Final = target_options
        self._flow: Final = flow
        self._run: Final = run
        self._say: Final = say
        self._outages: Final = outages
        self._was_warned_of: Final = was_warned_of
        self._unix_ms: Final = SystemClock().unix_ms
        self._began_ms: Final = self._unix_ms()
        self._writer: Final = StatusWriter(target_options, flow.name)
        self._lock: Final = threading.RLock()
        self._known: Final = StatusTable()
        self._targets: TargetTopics | None = None
        self._turns: Final = dict[TopicPartition, int]()
        """Those of this run."""
        self._known_before: frozenset[TopicPartition] = frozenset()
        """The source partitions that earlier runs have reported."""
        self._planned: dict[TopicPartition, int] = {}
        """By source partition of the last plan, by when all of it is on the target once that is complete."""
        self._read: dict[TopicPartition, int] = {}
        """The same as the last reading has found it."""
        self._is_clean = False
        self._unread = self._unused = ""
        self._is_denied = False
        self._was_read: Final = threading.Event()
        self._is_needed = self._is_complete = False
        """Whether the run needs what the topic has, and whether all of it was read once."""
        self._error: Exception | None = None
        """Why the last reading failed."""
        self._closing: Final = threading.Event()
        self._follower: StatusFollower | None = None
        self._thread: Final = threading.Thread(target=self._follow, name=f"mirror-status-{flow.name}", daemon=True)

    @property
    def table(self) -> StatusTable:
        """What has been reported, by this run, too; it changes while the topic is followed."""
        return self._known

    def measured_in(self, news: StatusNews) -> list[TaskReport]:
        """Return the last measurements of those tasks that have reported some in ``news``."""
        tasks = {key.number for key, _, _ in news.records if key.kind is StatusKind.MEASURED}
        with self._lock:
            return [self._known.measured[task] for task in tasks if task in self._known.measured]

    def snapshot(self) -> tuple[StatusTable, str]:
        """Return what has been reported until now, and why it may be out of date; an empty text: it is not."""
        with self._lock:
            return self._known.copy(), self._unread

    def read(self, *, needed: bool = False) -> None:
        """Wait until it was tried to read what the topic has, and follow it from then on.

        Raises MirrorError if the run has ``needed`` it and it could not be read. A topic that does not exist has
        nothing.
        """
        self._is_needed = needed
        self._thread.start()
        self._was_read.wait(_NEEDED_READ_S if needed else _FIRST_READ_S)
        if needed and not self._is_complete:
            raise self._why_incomplete()

    def _why_incomplete(self) -> MirrorError:
        topic, error = status_topic_of(self._flow.name), self._error
        why = f" within {_NEEDED_READ_S:.0f} s" if error is None else f": {self._unread}"
        line = f'topic {topic}, which has what begins at its end (start = "latest"), could not be read{why}'
        if isinstance(error, AuthorizationFailed):
            return AuthorizationFailed(f"{line}; grant Describe, Read and Write on it", error.code)
        found = KafkaTimeout(line) if error is None or is_outage(error) else KafkaError(line)
        found.__cause__ = error
        return found

    # --- the thread that follows

    def _follow(self) -> None:
        while not self._closing.is_set():
            try:
                if self._follower is None:
                    self._follower = StatusFollower(self._options, self._flow.name, _WAIT_MS)
                news = self._follower.news(STATUS_MS)
                self._take(news)
                self._succeeded() if news.error is None else self._failed(news.error)
            except Exception as error:  # noqa: BLE001 - without this thread no report would be seen any more
                self._failed(error)
            else:
                self._pass_on(news)
            self._was_read.set()
            self._closing.wait(_FOLLOW_S)
        if self._follower is not None:
            with contextlib.suppress(MirrorError):
                self._follower.close()

    def _take(self, news: StatusNews) -> None:
        with self._lock:
            self._known.apply(news)
            for tp, turn_ms in self._turns.items():  # they may not be written yet
                self._known.turns[tp] = max(turn_ms, self._known.turns.get(tp, 0))
            if self._targets is not None:
                self._put(obstacle_records(self._known.obstacles, self._targets.obstacles))
            self._put(error_records(self._known.errors, news.records))

    def _pass_on(self, news: StatusNews) -> None:
        try:
            self.on_news(news)
        except Exception as error:  # noqa: BLE001 - as above
            _log.exception("what the tasks report could not be used")
            text = f"{type(error).__name__}: {error}"
            if text != self._unused:
                self._say(f"what its tasks report could not be used: {text}; please report this bug")
            self._unused = text

    def _succeeded(self) -> None:
        self._unread, self._is_complete = "", True
        if self._outages is not None:
            self._outages.recovered(_SUBJECT)

    def _failed(self, error: Exception) -> None:
        text = str(error) if isinstance(error, MirrorError) else f"{type(error).__name__}: {error}"
        if not isinstance(error, MirrorError):
            _log.exception("what the status topic has cannot be used")
        is_new, self._unread, self._error = text != self._unread, text, error
        is_reported = self._outages is not None and self._was_read.is_set() and self._outages.failed(_SUBJECT, error)
        is_raised = self._is_needed and not self._was_read.is_set()
        if is_new and not (is_reported or is_raised):
            self._say_error(f"its status topic cannot be read, so it is not known what has failed: {text}", error)

    def _say_error(self, line: str, error: Exception) -> None:
        """Say an error; a topic that is denied is one line, whatever is denied."""
        if isinstance(error, AuthorizationFailed):
            topic = status_topic_of(self._flow.name)
            if self._is_denied or self._was_warned_of(topic):
                return
            self._is_denied = True
            line = f"{line}; grant Describe, Read and Write on topic {topic}"
        self._say(line)

    # --- what the run reports

    def report_state(self, state: str, reason: str = "") -> None:
        """Report in which state the run is from now on; an ended one has its outcome as the reason."""
        now_ms = self._unix_ms()
        with self._lock:
            before = self._known.run
            is_complete = state == "ended" and reason == Outcome.COMPLETE
            found = RunState(
                run=self._run,
                host=socket.gethostname(),
                state=state,
                since_ms=now_ms,
                reason=reason,
                complete_ms=now_ms if is_complete else 0 if before is None else before.complete_ms,
            )
            self._put({status_values.RUN: found})
            if is_complete and not has_limits(self._flow):  # the ends were read after the run had begun
                self._confirm(self._planned, self._began_ms)

    def report_read(self, status: FlowStatus, began_ms: int) -> None:
        """Report by when all of the source is on the target, by a reading of both that began at ``began_ms``."""
        with self._lock:
            found = {}
            for one in status.partitions:
                tp = TopicPartition(one.topic, one.partition)
                found[tp] = copied_by(one.lag, one.withheld, began_ms, self._read.get(tp, 0))
            self._known_before |= self._read.keys()
            self._read = found
            self._confirm(found, began_ms)

    def _confirm(self, copied: Mapping[TopicPartition, int], began_ms: int) -> None:
        if self._flow.end_position is None:  # else newer records are left out, and count neither as lag nor as open
            known = self._known_before | self._known.results().keys()
            found = confirmed(copied, began_ms, self._known.confirmed, known)
            self._put({status_values.CONFIRMED: found})

    def report_groups(self, groups: GroupsSummary) -> None:
        """Report the consumer groups after a round."""
        self._write({status_values.GROUPS: groups})

    def report_sync(self, state: SyncState) -> None:
        """Report what else is in step after a round."""
        self._write({status_values.SYNC: state})

    def prepared(self, targets: TargetTopics) -> None:
        """Report which topics cannot be copied."""
        with self._lock:
            self._targets = targets
            self._put(obstacle_records(self._known.obstacles, targets.obstacles))

    def began(self, initial: InitialPartitions, targets: TargetTopics) -> None:
        """Tell ``initial`` what earlier runs have found, and report what it knows then of these ``targets``.

        Without the topic, or if not all of it was read, only this process knows of it.
        """
        flow = self._flow
        with self._lock:
            initial.restore(flow, self._known.selection, self._known.initial)
            initial.on_start(flow, targets)
            if flow.begins_at_end and self._is_complete:
                self._put(initial_records(self._known, Selection.of(flow), initial.counts(targets)))

    def planned(self, plan: Plan) -> None:
        """Report whose turn it is, if not all partitions have theirs each time."""
        with self._lock:
            self._known_before |= self._known.results().keys()
            self._planned = dict.fromkeys(partitions_of(plan), self._began_ms)
            if missed := self._known_before - self._planned.keys():
                # Their reports are deleted below: a later run knows them only from here, if this one confirms nothing.
                since_ms = 0 if self._known.confirmed is None else self._known.confirmed.since_ms
                kept = confirmed({}, since_ms, self._known.confirmed, missed)
                self._put({status_values.CONFIRMED: kept})
            for tp, open_ in plan.withheld.items():
                self._planned[tp] = min(self._began_ms, open_.start_ms or 0)
            if not self._is_clean:
                self._put(outdated_records(self._known, plan, self._run, self._unix_ms()))
            self._is_clean = not self._unread
            self._report(plan.results_without_task, plan.period)
            if has_limits(self._flow):
                found = turn_records(self._known.turns, plan, self._unix_ms())
                self._put(found)
                self._turns.update(
                    (key.tp, self._known.turns[key.tp]) for key, turn in found.items() if turn is not None
                )

    def returned(self, plan: Plan, attempts: Sequence[AttemptResult]) -> None:
        """Report what the tasks of a job have returned, as :meth:`copied`, and the error of each that has one.

        A task whose reports were lost, or that could not begin, has reported nothing.
        """
        self.copied(plan, attempts)
        with self._lock:
            self._report([attempt.result for attempt in attempts], plan.period)

    def copied(self, plan: Plan, attempts: Sequence[AttemptResult]) -> None:
        """Report which partitions have failed, which have recovered, and how fast they were copied."""
        with self._lock:
            unhealthy = unhealthy_after(attempts, self._run, plan.period)
            self._put(health_records(self._known.health, unhealthy, plan, attempts, self._unix_ms()))
            rate = faster_rate(self._known.rate, [attempt.result for attempt in attempts], self._unix_ms())
            self._put({} if rate is None else {status_values.RATE: rate})

    def close(self) -> None:
        """Follow no longer, and write what waits, within :data:`_CLOSE_MS`."""
        self._closing.set()
        if self._follower is not None:
            self._follower.wake()
        if (error := self._writer.close(_CLOSE_MS)) is not None:
            self._say_error(f"other hosts will not know of this run: {error}", error)
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_MS / 1000)

    def _report(self, results: Iterable[RangeResult], number: int) -> None:
        """Report results that have an error, and take back those of the driver that have none any more."""
        for result in results:
            target = TopicPartition(result.target_topic, result.partition)
            before = self._known.partitions.get(target)
            if result.error is None and (before is None or before.report.result.error is None):
                continue
            report = PartitionReport(
                target=target,
                run=self._run,
                job=number,
                task=NO_TASK,
                attempt=0,
                taken=0,
                state=result.outcome.value,
                sequence=0,
                version=0,
                result=replace(result, timeline=None, withheld=None),
            )
            self._known.partitions[target] = Reported(report, self._unix_ms())
            if self._known.exists:
                self._writer.send(report)

    def _put(self, records: Records) -> None:
        self._known.put(records)
        self._write(records)

    def _write(self, records: Records) -> None:
        if self._known.exists:  # else the preparation has warned of it, and the end of the run would wait for nothing
            for key, value in records.items():
                self._writer.put(key, value)
