"""The streaming half of ``mirror-ranges``: one plan for each epoch.

An offset is a number of epochs, and what the plan saw: ``{"epoch": 3, "ends": {"orders": 120}, "lag": 5}``, with sums
by topic. It is a record, not the truth: that is the progress on the target, which the tasks read themselves. So a
restart from any checkpoint, or from none, goes on exactly.

With ``availableNow`` an epoch has the ranges up to where the source ended when the query began; without it each
partition is followed until the epoch's deadline.
"""

from __future__ import annotations

import contextlib
import random
import threading
import traceback
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from mirror.backoff import Backoff
from mirror.errors import MirrorError
from mirror.relay.model.ranges import Outcome
from mirror.runtime.clock import SystemClock
from mirror.spark.datasource.epoch_planner import Epochs
from mirror.spark.datasource.rows import TaskRows, partitions_of
from mirror.spark.ledger.ledger import Ledger, PlanningError
from mirror.telemetry.traces.ids import epoch_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.spark.datasource.options import FlowOptions
    from mirror.spark.ledger.plan import Plan

_FIRST_PAUSE_MS: Final = 1_000
_LONGEST_PAUSE_MS: Final = 30_000
_NOTHING_TO_DO_MS: Final = 5_000
_EARLY_MS: Final = 2_000

Offset = dict[str, Any]


class RangesStreamReader(TaskRows, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a process of its own on the driver's host, for as long as the query runs."""

    def __init__(self, options: FlowOptions) -> None:
        self.options: Final = options
        self._ledger: Final = Ledger(options.ledger)
        self._clock: Final = SystemClock()
        self._epochs: Final = Epochs(options, self._ledger, self._clock)
        self._backoff: Final = Backoff(_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS, random.Random())  # noqa: S311 - jitter
        self._failures = self._fruitless = self._paused_before = 0
        self._not_before_ms = self._clock.now()
        self._planned: dict[int, Plan] = {}
        self._early: EarlyPlan | None = None
        self._drains = False

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (PySpark's name)
        """The query ends once all that the source has now is copied. Raises MirrorError where that cannot be seen."""
        self._drains = True

    def initialOffset(self) -> Offset:  # noqa: N802  (PySpark's name)
        """Before the first epoch."""
        return {"epoch": 0}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802, ARG002  (PySpark's signature)
        """The next epoch, planned; or ``start`` where there is nothing to do, or the run is over.

        A stream outlives a cluster that does not answer: it is asked again, with backoff (KIP-580). A query that drains
        fails instead, like a scheduled run.
        """
        if self._clock.now() < self._not_before_ms:
            return start
        epoch = int(start["epoch"]) + 1
        if self._fails_at_once(epoch):
            return start
        try:
            plan = self._early_plan(epoch) or self._epochs.plan(epoch, drains=self._drains)
        except Exception as error:
            self._ledger.write_error(PlanningError(str(error) or repr(error), traceback.format_exc()))
            if self._drains or not isinstance(error, MirrorError):
                raise
            self._failures += 1
            self._not_before_ms = self._clock.now() + self._backoff.after(self._failures)
            if self._failures == 1:
                self._ledger.add_message(f"epoch {epoch} cannot be planned yet, and is tried again: {error}")
            return start
        if self._failures:
            self._ledger.add_message(f"epoch {epoch} is planned, after {self._failures} attempts that failed")
        self._failures = 0
        if plan is None or not plan.tasks:
            self._not_before_ms = self._clock.now() + (0 if self._drains else _NOTHING_TO_DO_MS)
            return start
        self._planned = {epoch: plan}
        return _offset(plan)

    def _fails_at_once(self, epoch: int) -> bool:
        """Whether there is to be a pause: after an epoch that copied nothing at all, the next would not, either."""
        if epoch == self._paused_before or self._drains:
            return False
        self._epochs.hear(epoch)
        if not self._epochs.fruitless:
            self._fruitless = 0
            return False
        self._fruitless += 1
        self._paused_before = epoch
        self._not_before_ms = self._clock.now() + self._backoff.after(self._fruitless)
        return True

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802  (PySpark's name)
        """What the source had when it was last looked at, with the lag: for the query's progress."""
        return next((_offset(plan) for plan in self._planned.values()), None)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:  # noqa: ARG002  (PySpark's signature)
        """The tasks of the epoch. After a restart Spark asks for an epoch of before: it is planned again."""
        epoch = int(end["epoch"])
        plan = self._planned.get(epoch) or self._epochs.plan(epoch, drains=self._drains)
        if plan is None:
            return []
        self._planned = {epoch: plan}
        until_ms = self._clock.unix_ms() + self._epochs.epoch_ms if self._epochs.follows else None
        if until_ms is not None:
            self._early = EarlyPlan(self._epochs, epoch + 1, self._epochs.epoch_ms - _EARLY_MS)
        return partitions_of(
            plan,
            run=self._epochs.run,
            until_ms=until_ms,
            renew_ms=self._epochs.renew_ms,
            trace=str(epoch_id(plan.flow, self._ledger.path.name, epoch)),
        )

    def _early_plan(self, epoch: int) -> Plan | None:
        early, self._early = self._early, None
        return None if early is None else early.take(epoch)

    def stop(self) -> None:
        """The query has ended."""
        self._early_plan(0)
        with contextlib.suppress(MirrorError):
            self._epochs.close()


class EarlyPlan:
    """The next epoch's plan, made shortly before this one ends: while it is being made, nothing would be copied.

    A plan is a record of some moment anyway, and each task begins at the target's progress.
    """

    def __init__(self, epochs: Epochs, epoch: int, wait_ms: int) -> None:
        self._epochs: Final = epochs
        self._epoch: Final = epoch
        self._plan: Plan | None = None
        self._cancelled: Final = threading.Event()
        self._wait_s: Final = max(0, wait_ms) / 1000
        self._thread: Final = threading.Thread(target=self._make, name="mirror-early-plan", daemon=True)
        self._thread.start()

    def _make(self) -> None:
        if not self._cancelled.wait(self._wait_s):
            with contextlib.suppress(Exception):  # it is made again when its time has come, and told what is wrong
                self._plan = self._epochs.plan(self._epoch, drains=False, early=True)

    def take(self, epoch: int) -> Plan | None:
        """The plan of ``epoch``, with what is known by now of the epoch before; None where there is none.

        Waits for one that is being made; none is made afterwards.
        """
        self._cancelled.set()
        self._thread.join()
        if (
            self._plan is None
            or not self._plan.tasks
            or epoch != self._epoch
            or not self._epochs.is_current(self._plan)
        ):
            return None
        return self._epochs.with_news(self._plan)


def _offset(plan: Plan) -> Offset:
    failed = sum(one.outcome is not Outcome.COMPLETE for one in plan.results_without_task)
    return {"epoch": plan.epoch, "ends": plan.ends, "lag": sum(plan.lags.values()), "not planned": failed}
