"""Runs the tasks of one scheduled run as a Spark job, and writes their results into the ledger.

The job is an RDD of tasks, not a query over the formats ``mirror-ranges`` and ``mirror``: for these Spark starts five
Python processes one after the other to create, plan and commit, and needs its SQL classes. (Notebooks use the formats.)
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from mirror.spark.datasource.copy_task import CopiedTasks, copy_tasks
from mirror.spark.datasource.task_environment import TaskEnvironment
from mirror.spark.driver.output.error_report import interruptions_kept
from mirror.spark.ledger.parquet import write_copied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark import SparkContext

    from mirror.spark.datasource.options import FlowOptions
    from mirror.spark.datasource.task_spec import CopyTask


def run_tasks(context: SparkContext, options: FlowOptions, tasks: Sequence[CopyTask]) -> None:
    """Copy the ranges of ``tasks``, each a task of one Spark job, and write the results of all into the ledger.

    Errors of copies are in the results. Raises Py4JJavaError if Spark gives up, and OSError if the ledger cannot be
    written; what the other tasks have copied is written before.
    """
    if not tasks:
        return
    copied = context.accumulator([], CopiedTasks())
    run = partial(copy_tasks, options, TaskEnvironment.of(os.environ), copied)
    try:
        with interruptions_kept():
            context.parallelize(tasks, len(tasks)).foreachPartition(run)
    finally:
        write_copied(options.ledger, copied.value)
