"""Two DAGs for Airflow 3: `mirror_run` copies what is new each hour, `mirror_verify` compares both sides each night.

They need apache-airflow-providers-apache-spark, and on each worker the checkout with its .venv, the configuration, and
the connection `mirror_spark` (type Spark; its host is the master, for example ``local[*,4]`` or ``spark://HOST:7077``).

Secrets stay out of this file and out of Airflow: they are files on the workers, see ``secrets-dir`` below.
"""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from collections.abc import Collection

# CHANGE here, or set the Airflow variables: they are read when a task runs. mirror_path is the PATH of the workers: the
# first spark-submit on it has to be the one of the mirror's .venv, or of a cluster's Spark.
HOME = "{{ var.value.get('mirror_home', '/opt/mirror') }}"
CONFIG = "{{ var.value.get('mirror_config', '/etc/mirror/mirror.toml') }}"
SECRETS = "{{ var.value.get('mirror_secrets_dir', '/etc/mirror/secrets') }}"
REPORTS = "{{ var.value.get('mirror_reports', '/var/lib/mirror') }}"


def notify(context: dict[str, Any]) -> None:
    """CHANGE: notify a person. Called once, when no attempt is left."""
    name = context["task_instance"].task_id
    logging.getLogger("airflow.task").error("%s has failed, and will not be tried again in this slot", name)


class MirrorSubmit(SparkSubmitOperator):  # type: ignore[misc]  # Airflow is not in the environment that checks types
    """Submits a job of the mirror. Its exit status decides whether Airflow tries again."""

    def __init__(self, *, final: Collection[int], **options: Any) -> None:
        """``final`` are the exit statuses that no repetition changes: the task fails at once, whatever its retries."""
        super().__init__(**options)
        self.final = frozenset(final)

    def execute(self, context: Any) -> None:
        """Submit the job, and wait for its end."""
        try:
            super().execute(context)
        except AirflowException as error:
            # The provider has the exit status of spark-submit in its message only.
            found = re.search(r"Error code is: (\d+)", str(error))
            if found and int(found[1]) in self.final:
                raise AirflowFailException(str(error)) from error
            raise


def submit(name: str, script: str, *, final: Collection[int], limit: timedelta, **options: Any) -> MirrorSubmit:
    """Return the task that submits ``script``, within ``limit``."""
    return MirrorSubmit(
        task_id=name,
        conn_id="mirror_spark",
        final=final,
        application=f"{HOME}/jobs/{script}",
        properties_file=f"{HOME}/config/spark-defaults.conf",
        application_args=["--config", CONFIG, "--secrets-dir", SECRETS, "--report-dir", f"{REPORTS}/{name}"],
        env_vars={"PYSPARK_PYTHON": f"{HOME}/.venv/bin/python", "PYSPARK_DRIVER_PYTHON": f"{HOME}/.venv/bin/python"},
        # Ends the attempt with SIGKILL, which is safe: the next one resumes at the committed progress.
        execution_timeout=limit,
        on_failure_callback=notify,
        **options,
    )


with DAG(
    "mirror_run",
    description="Copy what is new",
    schedule="7 * * * *",  # CHANGE
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    # A run copies all that is new, so that there is nothing to make up for.
    catchup=False,
    # One run of a flow at a time: a second one would take over from the first.
    max_active_runs=1,
    tags=["mirror"],
):
    # 1: cannot run, 2: wrong usage, 4: a person must decide. 3 (not everything is complete), 143 (SIGTERM) and a
    # killed JVM are tried again.
    submit(
        "run",
        "replicate.py",
        final={1, 2, 4},
        limit=timedelta(minutes=50),  # CHANGE, with the schedule
        retries=3,
        retry_delay=timedelta(minutes=1),
    )

with DAG(
    "mirror_verify",
    description="Compare source and target, record by record",
    schedule="30 2 * * *",  # CHANGE
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["mirror"],
):
    # 3: something differs, for a person. 1: something could not be looked at, perhaps for a moment only.
    submit(
        "verify",
        "verify.py",
        final={2, 3},
        limit=timedelta(hours=6),  # CHANGE
        retries=1,
        retry_delay=timedelta(minutes=10),
    )
