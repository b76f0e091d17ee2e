"""A job for Dagster that copies what is new each hour: ``dagster dev -f mirror_jobs.py``."""

from __future__ import annotations

import subprocess

from dagster import Definitions, Failure, RetryRequested, ScheduleDefinition, job, op

INCOMPLETE = 3
# CHANGE
COMMAND = "/opt/mirror/.venv/bin/mirror run --config /etc/mirror/mirror.toml --report-dir /var/lib/mirror/report"


@op(pool="mirror")  # a second run takes over from the first: dagster instance concurrency set mirror 1
def mirror_run() -> None:
    """Copy; only a run that has not completed everything is tried again."""
    status = subprocess.run(COMMAND.split(), check=False).returncode
    if status == INCOMPLETE:
        raise RetryRequested(max_retries=3, seconds_to_wait=60)
    if status:
        raise Failure(f"exit status {status}: jobs/README.md says what it means", allow_retries=False)


@job
def mirror() -> None:
    """Copy what is new."""
    mirror_run()


definitions = Definitions(jobs=[mirror], schedules=[ScheduleDefinition(job=mirror, cron_schedule="7 * * * *")])
