"""Two DAGs for Airflow 3, as those of mirror_dags.py, whose tasks are pods of Kubernetes with Spark in them.

They need apache-airflow-providers-cncf-kubernetes, mirror_pod.yaml beside this file, and in the namespace what
``kubectl apply -k config/kubernetes/base`` makes, with the Secret `mirror` (config/kubernetes/README.md).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from collections.abc import Collection


class MirrorPod(KubernetesPodOperator):  # type: ignore[misc]  # Airflow is not in the environment that checks types
    """Runs a command of the mirror. Its exit status decides whether Airflow tries again."""

    def __init__(self, *, final: Collection[int], **options: Any) -> None:
        """``final`` are the exit statuses that no repetition changes: the task fails at once, whatever its retries."""
        super().__init__(**options)
        self.final = frozenset(final)

    def cleanup(self, pod: Any, remote_pod: Any, *rest: Any, **options: Any) -> None:
        """Delete the pod if it has succeeded, and fail the task if not."""
        try:
            super().cleanup(pod, remote_pod, *rest, **options)
        except AirflowException as error:
            # No pod: it was never made, or deleted before its end was read.
            containers = () if remote_pod is None else remote_pod.status.container_statuses or ()
            ended = [one.state.terminated for one in containers if one.name == self.base_container_name]
            if any(one is not None and one.exit_code in self.final for one in ended):
                raise AirflowFailException(str(error)) from error
            raise


def pod(command: str, *, final: Collection[int], limit: timedelta, **options: Any) -> MirrorPod:
    """Return the task that runs ``mirror COMMAND``, within ``limit``."""
    return MirrorPod(
        task_id=command,
        name=f"mirror-{command}",
        namespace="mirror",  # CHANGE
        pod_template_file=str(Path(__file__).with_name("mirror_pod.yaml")),
        arguments=[command, "--master", "local[$(CORES),4]", "--report-dir", "/var/mirror"],
        final=final,
        # Deletes the pod, which gets SIGTERM: the next one resumes.
        execution_timeout=limit,
        termination_grace_period=60,
        on_finish_action="delete_succeeded_pod",
        **options,
    )


with DAG(
    "mirror_pod_run",
    description="Copy what is new",
    schedule="7 * * * *",  # CHANGE
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    # One run of a flow at a time: a second one would take over from the first.
    max_active_runs=1,
    tags=["mirror"],
):
    pod(
        "run",
        final={1, 2, 4},
        limit=timedelta(minutes=50),  # CHANGE, with the schedule
        retries=3,
        retry_delay=timedelta(minutes=1),
    )

with DAG(
    "mirror_pod_verify",
    description="Compare source and target, record by record",
    schedule="30 2 * * *",  # CHANGE
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["mirror"],
):
    pod(
        "verify",
        final={2, 3},
        limit=timedelta(hours=6),  # CHANGE
        retries=1,
        retry_delay=timedelta(minutes=10),
    )
