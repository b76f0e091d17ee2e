"""The tasks of a scheduled run as a real Spark job, whose copies only count."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mirror.spark.ledger.ledger import Ledger
from tests.spark.flow_harness import configuration

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

COUNTING = """
import os, signal
import mirror.relay.task.copy_ranges as module
from mirror.relay.model.ranges import Outcome, RangeResult

def copy_ranges(ranges, **_):
    (range_,) = ranges
    if range_.partition == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    result = RangeResult.initial(range_, range_.start, Outcome.COMPLETE)
    result.records = result.end = range_.end
    return [result]

module.copy_ranges = copy_ranges
"""
"""In place of a task's copies: that of partition 1 ends its worker."""
JOB = """
import sys
from pathlib import Path
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from mirror.relay.model.ranges import Range
from mirror.spark.tasks.options import FlowOptions
from mirror.spark.driver.flow_job import JobLabel, copy_job
from mirror.spark.tasks.task_spec import CopyTask, TaskSpec
from mirror.spark.ledger.ledger import Ledger

config, ledger = map(Path, sys.argv[1:])
options = FlowOptions(config, "f", ledger, parallelism=2)
tasks = [
    CopyTask(
        TaskSpec(run="run-1", job=0, task=number, tasks=2),
        [Range(flow="f", topic="orders", target_topic="a.orders", partition=number, start=0, end=90,
               source_cluster_id="id-a", topic_id="")],
    )
    for number in range(2)
]
settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
# One after the other: the first task has ended when the second one is given up.
with SparkContext(conf=SparkConf().setMaster("local[1]").setAll(list(settings.items()))) as context:
    context.setJobGroup("own", "a cell of a notebook", interruptOnCancel=False)
    job = copy_job(context, options, tasks, JobLabel.of("f", "a to b", "run-1"))
    try:
        job.run()
    except Py4JJavaError:
        Ledger(ledger).write_attempts(attempt for task in job.results for attempt in task.attempts)
        keys = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel", "spark.scheduler.pool")
        left = [context.getLocalProperty(key) for key in keys]
        assert left == ["own", "a cell of a notebook", "false", None], left
        sys.exit(7)
"""


def test_what_tasks_have_copied_is_recorded_although_another_one_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(COUNTING)
    config = tmp_path / "mirror.toml"
    config.write_text(configuration("orders"))
    ledger = Ledger.open(tmp_path, "f", "run-1")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[3]}")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.ui.showConsoleProgress=false pyspark-shell")
    # The worker of the second task dies, and local[1] makes one attempt.
    command = [sys.executable, "-c", JOB, str(config), str(ledger.path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    (attempt,) = ledger.attempts()
    assert (attempt.result.partition, attempt.result.records, str(attempt.result.outcome)) == (0, 90, "complete")
