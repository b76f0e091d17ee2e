"""Checks of one file by the tools of its scheduler. Run by the Python of tools.py; prints what is wrong.

python checks.py cron FILE
python checks.py kubernetes FILE VERSION
python checks.py operator FILE
python checks.py airflow FOLDER
python checks.py dagster FILE
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

OPERATORS = {"monitoring.coreos.com", "sparkoperator.k8s.io"}
"""The groups of objects that are not Kubernetes' own."""


def cron(path: str) -> Iterator[str]:
    """Lines of a user's crontab: an assignment, or five fields of time and a command."""
    from croniter import croniter

    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#") or "=" in line.split()[0]:
            continue
        *times, command = line.split(None, 5)
        if not croniter.is_valid(" ".join(times)):
            yield f"{number}: no time: {' '.join(times)}"
        if "%" in command.replace(r"\%", ""):
            yield f"{number}: cron ends the command at the percent sign"


def kubernetes(path: str, version: str) -> Iterator[str]:
    """Kubernetes' own objects that its API server of ``version`` would refuse, also for an unknown field."""
    import kubernetes_validate

    for found in yaml.safe_load_all(Path(path).read_text(encoding="utf-8")):
        if found["apiVersion"].split("/")[0] in OPERATORS:
            continue
        try:
            kubernetes_validate.validate(found, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{'.'.join(map(str, error.path))}: {error.message}"


def operator(path: str) -> Iterator[str]:
    """What the Spark operator's models refuse, or do not know: what they read has to be all that is written."""
    from kubeflow_spark_api.models import SparkV1beta2ScheduledSparkApplication, SparkV1beta2SparkApplication
    from pydantic import ValidationError

    models = {
        "SparkApplication": SparkV1beta2SparkApplication,
        "ScheduledSparkApplication": SparkV1beta2ScheduledSparkApplication,
    }
    for found in yaml.safe_load_all(Path(path).read_text(encoding="utf-8")):
        if found["kind"] in models:
            try:
                known = models[found["kind"]].from_dict(found)
            except ValidationError as error:
                yield str(error)
            else:
                yield from _unlike(found, known.to_dict(), "")


def _unlike(written: Any, read: Any, place: str) -> Iterator[str]:
    if isinstance(written, dict) and isinstance(read, dict):
        for name, value in written.items():
            yield from _unlike(value, read.get(name, "an unknown field"), f"{place}.{name}")
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for number, (one, other) in enumerate(zip(written, read, strict=True)):
            yield from _unlike(one, other, f"{place}[{number}]")
    elif written != read:
        yield f"{place}: {written!r} is read as {read!r}"


def airflow(folder: str) -> Iterator[str]:
    """What keeps Airflow from loading the DAGs of ``folder``."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(folder)
    yield from (f"{path}: {error}" for path, error in bag.import_errors.items())
    if sorted(bag.dags) != ["mirror_pod_run", "mirror_pod_verify", "mirror_run", "mirror_verify"]:
        yield f"other DAGs: {sorted(bag.dags)}"
    for dag in bag.dags.values():
        if dag.max_active_runs != 1 or dag.catchup:
            yield f"{dag.dag_id}: runs may overlap, or are made up for"


def pods(folder: str) -> Iterator[str]:
    """The pods that Airflow would ask Kubernetes for, as the lines of their YAML."""
    from airflow.dag_processing.dagbag import DagBag
    from kubernetes.client import ApiClient

    for dag in DagBag(folder).dags.values():
        for task in dag.tasks:
            if hasattr(task, "build_pod_request_obj"):
                pod = ApiClient().sanitize_for_serialization(task.build_pod_request_obj(dry_run=True))
                yield "---\n" + yaml.safe_dump(pod)


def dagster(path: str) -> Iterator[str]:
    """What is wrong with the job, for commands that end with each status."""
    import runpy

    from dagster import DagsterInstance, RetryRequested

    module = runpy.run_path(path)
    (schedule,) = module["definitions"].schedules
    if schedule.cron_schedule != "7 * * * *":
        yield f"another schedule: {schedule.cron_schedule}"
    for status, events in ((0, "STEP_SUCCESS"), (3, "STEP_UP_FOR_RETRY"), (1, "STEP_FAILURE"), (4, "STEP_FAILURE")):
        names = module["mirror_run"].compute_fn.decorated_fn.__globals__
        names["COMMAND"] = f"python3 -c raise(SystemExit({status}))"
        names["RetryRequested"] = lambda max_retries, **_: RetryRequested(max_retries)  # without its wait
        with DagsterInstance.ephemeral() as instance:
            result = module["mirror"].execute_in_process(instance=instance, raise_on_error=False)
        found = [event.event_type_value for event in result.all_events]
        if events not in found or ("STEP_UP_FOR_RETRY" in found) != (status == 3):
            yield f"exit status {status}: {found}"


if __name__ == "__main__":
    problems = list(globals()[sys.argv[1]](*sys.argv[2:]))
    sys.stdout.write("".join(f"{line}\n" for line in problems))
    sys.exit(bool(problems))
