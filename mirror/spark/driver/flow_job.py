"""Runs the tasks of one flow as a Spark job.

The job is an RDD of tasks, one per partition of the RDD, not a query: for a query Spark starts Python processes one
after the other to create, plan and commit, and needs its SQL classes.

::

    FlowJob ──job group, description, scheduler pool──► Spark ──tasks──► workers
       ▲                                                                   │
       └──────────────── accumulator: what each task returns ──────────────┘
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark import InheritableThread
from pyspark.accumulators import AccumulatorParam

from mirror.spark.driver.output.error_report import interruptions_kept
from mirror.spark.tasks.copy_task import copy_in_worker
from mirror.spark.tasks.task_environment import TaskEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark import Accumulator, SparkContext

    from mirror.spark.ledger.attempt_results import CopiedTask
    from mirror.spark.tasks.options import FlowOptions
    from mirror.spark.tasks.task_spec import CopyTask

T = TypeVar("T")
R = TypeVar("R")

_POOL: Final = "spark.scheduler.pool"
_PROPERTIES: Final = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel", _POOL)


@dataclass(frozen=True, slots=True)
class JobLabel:
    """How Spark shows a job, and shares its task slots."""

    group: str
    """The job group: what identifies the job, also to cancel it."""
    description: str
    """One line for people."""
    pool: str
    """The pool of the fair scheduler, so that a flow with many tasks does not starve another one."""

    @classmethod
    def of(cls, flow: str, description: str, *identifiers: str | int) -> JobLabel:
        """Return the label of a job of ``flow``; the ``identifiers`` tell it from the flow's other jobs."""
        return cls("-".join(["mirror", flow, *map(str, identifiers)]), description, flow)


class _Lists(AccumulatorParam["list[Any]"]):
    """Collects what tasks return. Spark adds each task once, also where the job fails at another task."""

    def zero(self, value: list[Any]) -> list[Any]:  # noqa: ARG002  (PySpark's signature)
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # noqa: N802  (PySpark's)
        value1 += value2
        return value1


@contextlib.contextmanager
def _properties_kept(context: SparkContext) -> Iterator[None]:
    """Give the thread its own job group, description and pool back: in a notebook its next jobs are the user's."""
    kept = {key: context.getLocalProperty(key) for key in _PROPERTIES}
    try:
        yield
    finally:
        with contextlib.suppress(Py4JError, OSError):  # Spark has ended
            for key, value in kept.items():
                context.setLocalProperty(key, cast("str", value))  # None removes it


# Invariant: What tasks have copied is recorded although Spark gives up another one: results come in an accumulator.
# Test: tests/spark/driver/test_flow_job.py::test_what_tasks_have_copied_is_recorded_although_another_one_is_lost
class FlowJob(Generic[T, R]):
    """One Spark job. Spark retries a task whose process dies, at most ``spark.task.maxFailures`` times."""

    def __init__(self, context: SparkContext, tasks: Sequence[T], run: Callable[[T], R], label: JobLabel) -> None:
        """``run`` runs in a worker, once for each of ``tasks``; all of it is pickled."""
        self.label: Final = label
        self._context: Final = context
        self._tasks: Final = tasks
        self._run: Final = run
        self.done: Final = Future[list[R]]()
        """Done when the job has ended that :meth:`start` has begun, with what :meth:`run` returns or raises."""
        self._returned: Final[Accumulator[list[R]]] = context.accumulator([], _Lists())

    @property
    def results(self) -> list[R]:
        """What the tasks have returned that have ended, in no order."""
        return self._returned.value

    def run(self) -> list[R]:
        """Run the job and return the results. Raises Py4JJavaError if Spark gives up; :attr:`results` are kept."""
        if self._tasks:
            context, label = self._context, self.label
            work = partial(_work, self._run, self._returned)
            with _properties_kept(context), interruptions_kept():
                context.setJobGroup(label.group, label.description, interruptOnCancel=True)
                context.setLocalProperty(_POOL, label.pool)
                context.parallelize(self._tasks, len(self._tasks)).foreachPartition(work)
        return self.results

    def start(self) -> None:
        """Run the job in a thread of its own: several jobs share one context this way."""
        InheritableThread(target=self._run_in_thread, name=self.label.group, daemon=True).start()

    def _run_in_thread(self) -> None:
        try:
            self.done.set_result(self.run())
        except BaseException as error:  # noqa: BLE001 - who waits for the result gets it
            self.done.set_exception(error)

    def cancel(self) -> None:
        """End the job now. Spark ends the tasks' processes; without Spark nothing runs."""
        with contextlib.suppress(Py4JError, OSError):
            self._context.cancelJobGroup(self.label.group)


def copy_job(
    context: SparkContext, options: FlowOptions, tasks: Sequence[CopyTask], label: JobLabel
) -> FlowJob[CopyTask, CopiedTask]:
    """Return the job that copies the ranges of ``tasks``. Errors of copies are in its results."""
    return FlowJob(context, tasks, partial(copy_in_worker, options, TaskEnvironment.of(os.environ)), label)


def _work(run: Callable[[T], R], returned: Accumulator[list[R]], tasks: Iterable[T]) -> None:
    for task in tasks:
        returned.add([run(task)])
