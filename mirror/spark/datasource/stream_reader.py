"""The streaming reader of ``mirror-ranges``: each epoch has one plan.

A Spark offset is the number of an epoch with sums of its plan by topic: ``{"epoch": 3, "ends": {"orders": 120}, "lag":
5}``. It is for information only: tasks start at the progress on the target. So a restart from any checkpoint, or from
none, resumes exactly.

With ``availableNow`` the ranges of all epochs end where the source ended when the query began; without it each
partition is followed until the epoch's deadline.

In a module of its own, so that Spark's other short-lived processes do not import the planning (0.3 instead of 1.2 s of
CPU).
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
from mirror.errors import MirrorError, is_outage
from mirror.relay.model.ranges import Outcome
from mirror.runtime.clock import SystemClock
from mirror.spark.datasource.epoch_planner import EpochPlanner
from mirror.spark.datasource.rows import TaskRows, partitions_of
from mirror.spark.datasource.task_spec import tasks_of
from mirror.spark.ledger.ledger import AWAITS_CLUSTER, PLANNED_AGAIN, Ledger, PlanningError
from mirror.telemetry.traces.ids import epoch_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.spark.datasource.options import FlowOptions
    from mirror.spark.ledger.plan import Plan

_MIN_BACKOFF_MS: Final = 1_000
_MAX_BACKOFF_MS: Final = 30_000
_IDLE_PAUSE_MS: Final = 5_000
_EARLY_MS: Final = 2_000
"""How long before the end of an epoch the planning of the next one begins, at least."""

Offset = dict[str, Any]


class RangesStreamReader(TaskRows, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs in a process of its own on the driver's host, for as long as the query runs."""

    def __init__(self, options: FlowOptions) -> None:
        self.options: Final = options
        self._ledger: Final = Ledger(options.ledger)
        self._clock: Final = SystemClock()
        self._planner: Final = EpochPlanner(options, self._ledger, self._clock)
        self._backoff: Final = Backoff(_MIN_BACKOFF_MS, _MAX_BACKOFF_MS, random.Random())  # noqa: S311 - jitter
        self._failures = self._fruitless = self._paused_before = 0
        self._not_before_ms = self._clock.now()
        self._planned: dict[int, Plan] = {}
        self._early: EarlyPlan | None = None
        self._drains = False

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (PySpark's name)
        """End the query once all records that the source has now are copied."""
        self._drains = True

    def initialOffset(self) -> Offset:  # noqa: N802  (PySpark's name)
        """Return the offset before the first epoch."""
        return {"epoch": 0}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802, ARG002  (PySpark's signature)
        """Plan the next epoch and return its offset, or ``start`` if there is nothing to do, or the run is over.

        A stream retries with backoff (KIP-580) if a cluster does not answer. A query that drains fails instead, as a
        scheduled run does.
        """
        if self._clock.now() < self._not_before_ms:
            return start
        epoch = int(start["epoch"]) + 1
        if self._backs_off(epoch):
            return start
        try:
            plan = self._early_plan(epoch) or self._planner.plan(epoch, drains=self._drains)
        except Exception as error:
            with contextlib.suppress(OSError):
                self._ledger.write_error(PlanningError(str(error) or repr(error), traceback.format_exc()))
            if self._drains or not isinstance(error, MirrorError):
                raise
            self._failures += 1
            self._not_before_ms = self._clock.now() + self._backoff.after(self._failures)
            if self._failures == 1:
                because = AWAITS_CLUSTER if is_outage(error) else " cannot be planned yet, and is retried: "
                self._ledger.add_message(f"epoch {epoch}{because}{error}")
            return start
        if self._failures:
            self._ledger.add_message(f"epoch {epoch} is planned, after {self._failures}{PLANNED_AGAIN}")
        self._failures = 0
        if plan is None or not plan.tasks:
            self._not_before_ms = self._clock.now() + (0 if self._drains else _IDLE_PAUSE_MS)
            return start
        self._planned = {epoch: plan}
        return _offset(plan)

    def _backs_off(self, epoch: int) -> bool:
        """Return whether to pause before ``epoch``: after an epoch that copied nothing, the next would not, either."""
        if epoch == self._paused_before or self._drains:
            return False
        self._planner.unhealthy_after_last(epoch)
        if not self._planner.last_epoch_fruitless:
            self._fruitless = 0
            return False
        self._fruitless += 1
        self._paused_before = epoch
        self._not_before_ms = self._clock.now() + self._backoff.after(self._fruitless)
        return True

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802  (PySpark's name)
        """Return the offset of the last plan, for the progress that Spark reports of the query."""
        return next((_offset(plan) for plan in self._planned.values()), None)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:  # noqa: ARG002  (PySpark's signature)
        """Return the tasks of the epoch. After a restart Spark requests an earlier epoch, which is planned again."""
        epoch = int(end["epoch"])
        plan = self._planned.get(epoch) or self._planner.plan(epoch, drains=self._drains)
        if plan is None:
            return []
        self._planned = {epoch: plan}
        until_ms = self._clock.unix_ms() + self._planner.epoch_ms if self._planner.follows else None
        if until_ms is not None:
            epoch_ms = self._planner.epoch_ms
            self._early = EarlyPlan(self._planner, epoch + 1, epoch_ms - early_ms(epoch_ms, plan.took_ms))
        return partitions_of(
            tasks_of(
                plan,
                run=self._planner.run,
                until_ms=until_ms,
                renew_ms=self._planner.renew_ms,
                trace=str(epoch_id(plan.flow, self._ledger.path.name, epoch)),
            )
        )

    def _early_plan(self, epoch: int) -> Plan | None:
        early, self._early = self._early, None
        return None if early is None else early.result(epoch)

    def stop(self) -> None:
        """Release everything: the query has ended."""
        self._early_plan(0)
        with contextlib.suppress(MirrorError):
            self._planner.close()


def early_ms(epoch_ms: int, took_ms: int | None) -> int:
    """Return how long before the end of an epoch the next one is to be planned; the last plan took ``took_ms``.

    Tasks and the driver take the processors at the edge: the next plan may take twice as long.
    """
    return min(max(_EARLY_MS, 2 * (took_ms or 0)), max(_EARLY_MS, epoch_ms // 2))


class EarlyPlan:
    """Makes the next epoch's plan in a thread, shortly before this epoch ends, so that tasks do not wait for it.

    The plan may be a little out of date: each task starts at the target's progress, or knows it as a lower bound, and
    what is new on the source since is added to the epoch (:mod:`mirror.spark.discovery`).
    """

    def __init__(self, planner: EpochPlanner, epoch: int, wait_ms: int) -> None:
        self._planner: Final = planner
        self._epoch: Final = epoch
        self._plan: Plan | None = None
        self._cancelled: Final = threading.Event()
        self._wait_s: Final = max(0, wait_ms) / 1000
        self._thread: Final = threading.Thread(target=self._make, name="mirror-early-plan", daemon=True)
        self._thread.start()

    def _make(self) -> None:
        if not self._cancelled.wait(self._wait_s):
            with contextlib.suppress(Exception):  # the regular plan follows, and reports the error
                self._plan = self._planner.plan(self._epoch, drains=False, early=True)

    def result(self, epoch: int) -> Plan | None:
        """Return the plan of ``epoch`` with the results of the last epoch; None if it does not exist.

        Waits for a plan that is being made; a plan that is not begun yet is cancelled.
        """
        self._cancelled.set()
        self._thread.join()
        if self._plan is None or not self._plan.tasks or epoch != self._epoch:
            return None
        return self._planner.finish_early_plan(self._plan)


def _offset(plan: Plan) -> Offset:
    failed = sum(result.outcome is not Outcome.COMPLETE for result in plan.results_without_task)
    return {"epoch": plan.epoch, "ends": plan.ends, "lag": sum(plan.lags.values()), "not planned": failed}
