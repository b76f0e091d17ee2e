"""The tasks of a scheduled run as a real Spark job, with clusters in a folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mirror.spark.ledger.ledger import Ledger
from tests.spark.flow_harness import configuration
from tests.spark.stand_in.files import FOLDER, Cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

STAND_IN = Path(__file__).parents[1] / "stand_in"
JOB = """
import sys
from pathlib import Path
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from mirror.spark.tasks.options import FlowOptions
from mirror.spark.driver.flow_job import JobLabel, copy_job
from mirror.spark.tasks.task_spec import TaskSpec, tasks_of
from mirror.spark.clusters import open_sides
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.planning.snapshot import PlanRequest, make_plan

config, ledger = map(Path, sys.argv[1:])
options = FlowOptions(config, "f", ledger, parallelism=2)
loaded, flow = options.load()
with open_sides(loaded, flow) as clusters:
    plan = make_plan(PlanRequest(flow=flow, now_ms=0, parallelism=2), *clusters)
Ledger(ledger).write_plan(plan)
tasks = tasks_of(plan, TaskSpec(run="run-1", job=0))
assert len(tasks) == 2, tasks
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
    Cluster("a:1", tmp_path).make().add_topic("orders", [90, 80])
    target = Cluster("b:1", tmp_path).make().add_topic("a.orders", [0, 0])
    config = tmp_path / "mirror.toml"
    config.write_text(configuration("orders"))
    ledger = Ledger.open(tmp_path, "f", "run-1")
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.ui.showConsoleProgress=false pyspark-shell")
    # The larger partition is the first task's; the worker of the second one dies, and local[1] makes one attempt.
    target.set_moods({"a.orders/1": "die"})
    command = [sys.executable, "-c", JOB, str(config), str(ledger.path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    plan = ledger.plan()
    assert plan is not None
    assert [[one.partition for one in ranges] for ranges in plan.tasks] == [[0], [1]]
    (attempt,) = ledger.attempts()
    assert (attempt.result.partition, attempt.result.records, str(attempt.result.outcome)) == (0, 90, "complete")
