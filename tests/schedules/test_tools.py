"""The files of jobs/schedules, checked by the tools of their schedulers. They need an environment of their own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.schedules.tools import HERE, SCHEDULES, airflow_environment, tools_python

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

CRONTAB = SCHEDULES / "cron" / "mirror.crontab"
CRONJOB = SCHEDULES / "kubernetes" / "cronjob.yaml"
STREAM = SCHEDULES / "kubernetes" / "stream.yaml"
APPLICATION = SCHEDULES / "kubernetes" / "scheduledsparkapplication.yaml"
VERSIONS = ("1.29", "1.31", "1.37")
"""The oldest that has what the file uses, the first in which it is stable, and the newest."""


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


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_accepts_the_stream(python: Path, tmp_path: Path, version: str) -> None:
    assert check(python, "kubernetes", STREAM, version) == (0, "")
    assert check(python, "kubernetes", changed(STREAM, tmp_path, "replicas: 1", 'replicas: "1"'), version)[0] == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_accepts_the_cron_jobs(python: Path, tmp_path: Path, version: str) -> None:
    assert check(python, "kubernetes", CRONJOB, version) == (0, "")
    for old, new in (
        ("concurrencyPolicy:", "concurencyPolicy:"),
        ("operator: In", "operater: In"),
        ("backoffLimit: 3", 'backoffLimit: "3"'),
    ):
        assert check(python, "kubernetes", changed(CRONJOB, tmp_path, old, new), version)[0] == 1, old


def test_the_spark_operator_knows_each_field(python: Path, tmp_path: Path) -> None:
    assert check(python, "operator", APPLICATION) == (0, "")
    for old, new in (
        ("onFailureRetries:", "onFailureRetry:"),
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
