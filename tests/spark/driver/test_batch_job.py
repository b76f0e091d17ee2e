"""The job and its command, wrongly used: neither starts Spark. Whole runs are in tests/e2e."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.spark.flow_harness import configuration

ROOT = Path(__file__).parents[3]


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)


def test_wrong_usage_of_the_job_itself(tmp_path: Path) -> None:
    done = run(tmp_path, str(ROOT / "jobs" / "replicate.py"), "--flow", "good")
    assert done.returncode == 2
    assert "--config is missing, and so is the environment variable MIRROR_CONFIG" in done.stderr
    assert done.stdout == ""


def test_wrong_usage_and_a_wrong_configuration_need_no_spark(tmp_path: Path) -> None:
    (tmp_path / "mirror.toml").write_text(configuration())
    command = ("-m", "mirror.cli", "run", "--config", "mirror.toml", "--report-dir", "my report")
    assert run(tmp_path, *command, "--nonsense").returncode == 2
    done = run(tmp_path, *command, "--flow", "other")
    assert done.returncode == 1
    assert "other" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "my report").exists(), "where it submits, its log is"
