"""The DAGs of jobs/schedules, run by Airflow with the real spark-submit: the exit status decides about retries."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.broker_side import Side
from tests.e2e.site import MARK, Site, flow
from tests.schedules.tools import ROOT, airflow_environment, tools_python

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(1200)]

RECORDS = 200
VALUE = b"v" * 500
"""In all about 110 KB: with the smallest limit for each run, two runs."""


@dataclass(frozen=True)
class Airflow:
    """An Airflow with a database of its own."""

    python: Path
    environment: dict[str, str]

    def run(self, dag: str) -> tuple[dict[str, Any], str]:
        """How one run of ``dag`` ended, and all that was printed."""
        command = [str(self.python), "-m", "tests.schedules.run_dag", dag]
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False)
        found = re.search(r"^RESULT (.*)$", done.stdout, re.MULTILINE)
        assert found, done.stdout[-5000:] + done.stderr[-5000:]
        result: dict[str, Any] = json.loads(found[1])
        return result, done.stdout + done.stderr


@pytest.fixture
def airflow(site: Site, tmp_path: Path) -> Airflow:
    python, home, secrets = tools_python(), tmp_path / "airflow", tmp_path / "secrets"
    secrets.mkdir()
    environment = airflow_environment(
        home,
        AIRFLOW_CONN_MIRROR_SPARK=json.dumps({"conn_type": "spark", "host": "local[2,4]"}),
        AIRFLOW_VAR_MIRROR_HOME=str(ROOT),
        AIRFLOW_VAR_MIRROR_CONFIG=str(site.config),
        AIRFLOW_VAR_MIRROR_SECRETS_DIR=str(secrets),
        AIRFLOW_VAR_MIRROR_REPORTS=str(tmp_path / "reports"),
        # The first spark-submit is that of the project's environment, as the DAGs' file says.
        PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **{MARK: str(site.folder)},
    )
    migrate = [str(python), "-m", "airflow", "db", "migrate"]
    subprocess.run(migrate, env=environment, check=True, capture_output=True)
    return Airflow(python, environment)


def test_the_dags_copy_try_again_and_verify(
    airflow: Airflow, site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    topic = unique("airflow")
    source.create(topic)
    values = [b"%d-%s" % (number, VALUE) for number in range(RECORDS)]
    source.fill(topic, values, batch_num_messages=1, linger_ms=0)
    limited = flow("a", "b", [topic], "max-bytes-per-run = 65536")
    site.write({"a": source.address, "b": target.address}, {"f": limited})

    result, said = airflow.run("mirror_run")
    assert result["state"] == "success", said[-5000:]
    assert 1 < result["attempts"] <= 4, "exit status 3 is tried again"
    assert target.read(f"a.{topic}") == values

    result, said = airflow.run("mirror_verify")
    assert result == {"state": "success", "attempts": 1}, said[-5000:]
    verified = json.loads((site.folder / "reports" / "verify" / "verify.json").read_text(encoding="utf-8"))
    assert str(RECORDS) in json.dumps(verified)

    # A difference is for a person: no attempt more.
    target.fill(f"a.{topic}", [b"written by another"])
    result, said = airflow.run("mirror_verify")
    assert result == {"state": "failed", "attempts": 1}, said[-5000:]
    assert "Error code is: 3" in said
    assert "verify has failed, and will not be tried again in this slot" in said


def test_a_run_that_cannot_begin_is_not_tried_again(airflow: Airflow, site: Site, target: Side) -> None:
    site.write({"b": target.address}, {"f": flow("a", "b", ["x"])})
    result, said = airflow.run("mirror_run")
    assert result == {"state": "failed", "attempts": 1}, said[-5000:]
    assert "Error code is: 1" in said
