"""The tools that check files for schedulers, apart from our own packages: Airflow pins many of the same ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
SCHEDULES: Final = ROOT / "jobs" / "schedules"
_LOCK: Final = HERE / "requirements.txt"
_FOLDER: Final = ROOT / "build" / "schedules"


def tools_python() -> Path:
    """The interpreter of the environment, which is made if the lock has changed: that takes minutes."""
    python, installed = _FOLDER / "bin" / "python", _FOLDER / "installed.txt"
    lock = _LOCK.read_text(encoding="utf-8")
    if not installed.exists() or installed.read_text(encoding="utf-8") != lock:
        shutil.rmtree(_FOLDER, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(_FOLDER)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "--require-hashes", "-r", str(_LOCK)], check=True)
        installed.write_text(lock, encoding="utf-8")
    return python


def kubernetes_program() -> Path:
    """The program of kubernetes/main.go, built by Go from its locked modules."""
    program = ROOT / "build" / "kubernetes"
    go = ["go", "build", "-mod=readonly", "-trimpath", "-o", str(program), "."]
    subprocess.run(go, cwd=HERE / "kubernetes", check=True)
    return program


def airflow_environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of an Airflow of its own in the folder ``home``, with the lines of our own packages left out."""
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "SPARK_HOME"}}
    airflow = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(SCHEDULES / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        "NO_PROXY": "*",
    }
    return {**kept, **airflow, **more}
