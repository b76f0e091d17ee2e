"""The files of jobs/schedules, checked by the tools of their schedulers. They need an environment of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.schedules.kubernetes_api import api_server
from tests.schedules.test_kubernetes import AIRFLOW, FOLDERS, KUBERNETES
from tests.schedules.tools import HERE, ROOT, SCHEDULES, airflow_environment, kubernetes_program, tools_python

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

CRONTAB = SCHEDULES / "cron" / "mirror.crontab"
APPLICATION = KUBERNETES / "spark-scheduled" / "scheduledsparkapplication.yaml"
VERSIONS = ("1.31", "1.37")
"""The oldest in which all that the objects use is stable, and the newest."""


@pytest.fixture(scope="module")
def python() -> Path:
    return tools_python()


def check(python: Path, *arguments: object, folder: Path | None = None) -> tuple[int, str]:
    done = subprocess.run(
        [python, HERE / "checks.py", *map(str, arguments)],
        env=airflow_environment(folder) if folder else None,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + (done.stderr if done.returncode and not done.stdout else "")


def changed(path: Path, folder: Path, old: str, new: str) -> Path:
    """A copy of ``path`` with one thing wrong."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    copy = folder / path.name
    copy.write_text(text.replace(old, new, 1), encoding="utf-8")
    return copy


def test_cron_runs_each_line(python: Path, tmp_path: Path) -> None:
    assert check(python, "cron", CRONTAB) == (0, "")
    assert check(python, "cron", changed(CRONTAB, tmp_path, "7 * * * *", "67 * * * *"))[0] == 1
    assert check(python, "cron", changed(CRONTAB, tmp_path, "/report", "/report-%d"))[0] == 1


@pytest.fixture(scope="module")
def program() -> Path:
    return kubernetes_program()


@pytest.fixture(scope="module")
def built(program: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What Kustomize makes of each folder, and the pods that are no part of one."""
    made = [KUBERNETES / "spark" / "driver.yaml", KUBERNETES / "spark" / "executor.yaml", AIRFLOW]
    for folder in FOLDERS:
        path = tmp_path_factory.mktemp("built") / f"{folder.name}.yaml"
        path.write_text(subprocess.run([program, "build", folder], stdout=-1, text=True, check=True).stdout)
        made.append(path)
    return made


def test_the_folder_that_the_document_shows_changes_what_it_says(program: Path, tmp_path: Path) -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", (KUBERNETES / "README.md").read_text("utf-8"), re.DOTALL)
    checkout = os.path.relpath(ROOT, tmp_path)  # Kustomize takes no absolute path
    (tmp_path / "kustomization.yaml").write_text(shown.replace("CHECKOUT", checkout), "utf-8")
    (tmp_path / "mirror.toml").write_text("# mine\n", "utf-8")
    done = subprocess.run([program, "build", tmp_path], capture_output=True, text=True, check=True)
    found = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(done.stdout)}
    assert {one["metadata"]["namespace"] for one in found.values()} == {"mirror"}
    assert found["ConfigMap", "mirror"]["data"] == {"mirror.toml": "# mine\n"}
    (container,) = found["Deployment", "mirror-stream"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/mirror:0.2.0"
    assert container["resources"]["limits"]["cpu"] == "4"


def forbidden(program: Path, objects: str) -> str:
    """What the Pod Security Standard `restricted` and the types of the Prometheus operator refuse."""
    done = subprocess.run([program, "check"], input=objects, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.stdout


def test_kubernetes_accepts_each_object(python: Path, built: list[Path]) -> None:
    for version in VERSIONS:
        for path in built:
            if path.parent.parent != KUBERNETES and path != AIRFLOW:  # a part of a pod is no object
                assert check(python, "kubernetes", path, version) == (0, ""), path


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("scheduled/run.yaml", "concurrencyPolicy:", "concurencyPolicy:"),
        ("scheduled/run.yaml", "operator: In", "operater: In"),
        ("stream/deployment.yaml", "replicas: 1", 'replicas: "1"'),
    ],
)
def test_kubernetes_refuses_a_mistake(python: Path, tmp_path: Path, name: str, old: str, new: str) -> None:
    assert check(python, "kubernetes", changed(KUBERNETES / name, tmp_path, old, new), VERSIONS[-1])[0] == 1


def test_pods_meet_the_standard_restricted(program: Path, built: list[Path], tmp_path: Path) -> None:
    for path in built:
        assert forbidden(program, path.read_text("utf-8")) == "", path
    for path in (KUBERNETES / "scheduled" / "run.yaml", APPLICATION, AIRFLOW):
        wrong = changed(path, tmp_path, "drop: [ALL]", "drop: [CHOWN]").read_text("utf-8")
        assert "unrestricted capabilities" in forbidden(program, wrong), path
    monitor = changed(KUBERNETES / "monitoring" / "podmonitor.yaml", tmp_path, "interval:", "intervall:")
    assert 'unknown field "intervall"' in forbidden(program, monitor.read_text("utf-8"))


@pytest.mark.spark
def test_the_driver_that_spark_submit_asks_for_meets_it_too(program: Path) -> None:
    """Also: its arguments are those for which entrypoint.sh is written."""
    submit = [
        Path(sys.executable).with_name("spark-submit"),
        "--properties-file",
        "config/kubernetes/spark/spark-defaults.conf",
    ]
    job = ["local:///opt/mirror/jobs/stream.py", "--report-dir", "/var/mirror"]
    with api_server() as (address, sent):
        options = ["--master", f"k8s://{address}", "--conf", "spark.kubernetes.submission.waitAppCompletion=false"]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        command = [str(one) for one in (*submit, *options, *job)]
        subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True, timeout=300)
    (pod,) = (one for one in sent if one["kind"] == "Pod")
    assert forbidden(program, json.dumps(pod)) == ""
    (container,) = pod["spec"]["containers"]
    properties = ["--properties-file", "/opt/spark/conf/spark.properties"]
    assert container["args"] == ["driver", *properties, "--class", "org.apache.spark.deploy.PythonRunner", *job]
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "2048Mi"}
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_the_spark_operator_knows_each_field(python: Path, built: list[Path], tmp_path: Path) -> None:
    applications = [path for path in built if path.stem in {"spark-stream", "spark-scheduled"}]
    assert len(applications) == 2
    for path in applications:
        assert check(python, "operator", path) == (0, "")
    for old, new in (
        ("onFailureRetries:", "onFailureRetry:"),
        ("automountServiceAccountToken:", "automountAccountToken:"),
        ("mainApplicationFile: local", "mainApplicationFil: local"),
        ("instances: 2", "instances: two"),
    ):
        assert check(python, "operator", changed(APPLICATION, tmp_path, old, new))[0] == 1, old


def test_airflow_loads_the_dags(python: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert check(python, "airflow", SCHEDULES / "airflow", folder=home)[0] == 0
    for old, new in (("max_active_runs=1", "max_active_runs=2"), ('schedule="7 *', 'schedule="67 *')):
        wrong = tmp_path / "wrong"
        shutil.rmtree(wrong, ignore_errors=True)
        wrong.mkdir()
        changed(SCHEDULES / "airflow" / "mirror_dags.py", wrong, old, new)
        assert check(python, "airflow", wrong, folder=home)[0] == 1, old


def test_the_pods_that_airflow_asks_for_meet_the_standard_restricted(
    python: Path, program: Path, tmp_path: Path
) -> None:
    _, found = check(python, "pods", SCHEDULES / "airflow", folder=tmp_path)
    pods = found[found.index("---") :]
    assert pods.count("kind: Pod\n") == 2
    assert "- local[$(CORES),4]\n" in pods
    assert forbidden(program, pods) == ""


@pytest.fixture(scope="module")
def airflow_home(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("airflow")
    migrate = [str(python), "-m", "airflow", "db", "migrate"]
    subprocess.run(migrate, env=airflow_environment(home), check=True, capture_output=True)
    return home


@pytest.mark.parametrize(
    ("dag", "status", "state", "attempts"),
    [
        ("mirror_pod_run", 0, "success", 1),
        ("mirror_pod_run", 3, "failed", 4),
        ("mirror_pod_run", 4, "failed", 1),
        ("mirror_pod_verify", 3, "failed", 1),
    ],
)
def test_airflow_runs_pods_and_their_exit_status_decides_about_retries(
    python: Path, airflow_home: Path, dag: str, status: int, state: str, attempts: int
) -> None:
    with api_server(status) as (address, sent):
        cluster = {"clusters": [{"name": "c", "cluster": {"server": address}}], "users": [{"name": "u", "user": {}}]}
        context = {"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "current-context": "c"}
        extra = {"kube_config": json.dumps({"apiVersion": "v1", "kind": "Config", **cluster, **context})}
        connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
        environment = airflow_environment(airflow_home, AIRFLOW_CONN_KUBERNETES_DEFAULT=connection)
        run = [str(python), "-m", "tests.schedules.run_dag", dag]
        done = subprocess.run(run, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    result = {"state": state, "attempts": attempts}
    assert f"\nRESULT {json.dumps(result)}\n" in done.stdout, done.stdout[-5000:] + done.stderr[-5000:]
    assert len([one for one in sent if one["kind"] == "Pod"]) == attempts


def test_dagster_tries_only_status_3_again(python: Path) -> None:
    assert check(python, "dagster", SCHEDULES / "dagster" / "mirror_jobs.py") == (0, "")
