"""Runs a DAG of jobs/schedules/airflow once, with its retries, by the Python of tools.py. Prints the result as JSON."""

from __future__ import annotations

import json
import sys
from datetime import timedelta

from airflow.dag_processing.dagbag import DagBag

from tests.schedules.tools import SCHEDULES


def main(name: str) -> None:
    dag = DagBag(str(SCHEDULES / "airflow")).dags[name]
    for task in dag.tasks:
        task.retry_delay = timedelta(seconds=1)
    run = dag.test()
    (task,) = run.get_task_instances()
    sys.stdout.write(f"\nRESULT {json.dumps({'state': str(run.state.value), 'attempts': task.try_number})}\n")


if __name__ == "__main__":
    main(sys.argv[1])
