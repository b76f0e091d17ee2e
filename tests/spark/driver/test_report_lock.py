"""One run at a time in a report folder: the kernel's lock, held by other processes and let go by their end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from mirror.errors import FlowError
from mirror.spark.driver.launch.submission import Submission
from mirror.spark.driver.report.report_lock import locked
from tests.other_user import OtherUser

HOLDING = """
import signal, sys
from pathlib import Path
from mirror.spark.driver.report.report_lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    signal.pause()
"""
ROOT = Path(__file__).parents[3]
JOB = ROOT / "jobs" / "replicate.py"
CONFIG = """
[clusters.a]
"bootstrap.servers" = "127.0.0.1:1"
[clusters.b]
"bootstrap.servers" = "127.0.0.1:2"
[flows.f]
source = "a"
target = "b"
topics = [".*"]
"""
BUSY = "another run is using the report folder .*; wait until it ends, or for other flows .* --report-dir"


def test_a_second_run_is_refused_until_the_first_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirror.spark.driver.launch.submission.locked", partial(locked, wait_s=0))
    folder = tmp_path / "new" / "report"
    with subprocess.Popen([sys.executable, "-c", HOLDING, str(folder)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            log = folder / "spark.log"
            log.write_text("of the first run")
            with pytest.raises(FlowError, match=BUSY), locked(folder, wait_s=0):
                pytest.fail("two hold the lock")
            # `mirror run` says so before it starts Spark, and leaves the log alone.
            with pytest.raises(FlowError, match=BUSY):
                Submission([], "local", folder).run()
            assert log.read_text() == "of the first run"
            # A job that is submitted without `mirror run` reports it by itself.
            (tmp_path / "mirror.toml").write_text(CONFIG)
            command = [sys.executable, str(JOB), "--config", "mirror.toml", "--report-dir", str(folder)]
            environ = {**os.environ, "PYTHONPATH": str(ROOT)}
            job = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
            assert (job.returncode, job.stdout) == (1, "")
            assert re.fullmatch(f"mirror: {BUSY}\n", job.stderr)
            assert not (folder / "summary.json").exists()
        finally:
            holder.kill()
    for _ in range(2):
        with locked(folder):
            pass


def test_a_run_waits_for_one_that_is_ending(tmp_path: Path) -> None:
    """After a kill of `mirror run`, its driver holds the lock for some seconds."""
    with subprocess.Popen([sys.executable, "-c", HOLDING, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            ending = threading.Timer(0.5, holder.kill)
            ending.start()
            with locked(tmp_path):
                assert holder.wait() == -signal.SIGKILL
            ending.join()
        finally:
            holder.kill()


def test_a_folder_that_cannot_be_created_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(FlowError, match=r"the report folder .* cannot be used: File exists"),
        locked(tmp_path / "file"),
    ):
        pytest.fail("a file was taken for a folder")


def test_a_report_folder_and_its_lock_are_for_their_user_alone(tmp_path: Path) -> None:
    """Who may read a file may lock it: any user of the host could keep runs from starting."""
    folder = tmp_path / "report"
    with locked(folder):
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (folder / "run.lock").stat().st_mode & 0o777 == 0o600


def test_a_report_folder_that_another_user_has_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Say in /tmp, before the first run: its owner could replace the ledger, from which tasks read."""
    folder = tmp_path / "report"
    folder.mkdir()
    folder.chmod(0o777)
    OtherUser(monkeypatch).owns(folder)
    refused = rf"^the report folder {folder} cannot be used: it belongs to .*, who could replace what is in it: change"
    with pytest.raises(FlowError, match=refused), locked(folder):
        pytest.fail("it is used")
    assert list(folder.iterdir()) == []


def test_a_lock_file_of_another_user_is_refused_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        (tmp_path / "run.lock").touch()
        OtherUser(monkeypatch).owns(tmp_path / "run.lock")
    else:
        (tmp_path / "run.lock").symlink_to(tmp_path / "other")
    refused = rf"^the report folder {tmp_path} cannot be used: run\.lock: it .*: remove it"
    with pytest.raises(FlowError, match=refused), locked(tmp_path):
        pytest.fail("it is locked")
