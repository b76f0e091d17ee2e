"""The files of jobs/schedules, as far as this host can check them at once. test_tools.py has Airflow and Kubernetes."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from mirror.exit_status import ATTENTION, MIRRORMAKER_COPIES
from mirror.spark.driver.job_options import JobOptions
from mirror.spark.driver.verify_options import VerifyOptions
from tests.schedules.tools import ROOT, SCHEDULES

SLOT = SCHEDULES / "cron" / "slot.sh"
UNITS = sorted((SCHEDULES / "systemd").iterdir())
FILES = sorted(path for path in SCHEDULES.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
INSTALLED = "/opt/mirror/.venv/bin/mirror"


def slot(folder: Path, command: str, *, seconds: int = 30, attempts: int = 3) -> subprocess.CompletedProcess[str]:
    whole = [str(SLOT), str(folder / "slot"), str(seconds), str(attempts), "sh", "-c", command]
    environ = {"PATH": "/usr/bin:/bin", "SLOT_PAUSE_S": "0"}
    return subprocess.run(whole, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=30)


# --- cron


def test_a_slot_in_which_everything_is_copied_prints_nothing(tmp_path: Path) -> None:
    done = slot(tmp_path, "echo progress; echo warning >&2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("status", "attempts", "why"),
    [
        (1, 1, "could not run, or was killed"),
        (2, 1, "wrong usage: it will fail in each slot"),
        (3, 3, "ran, but not everything is complete"),
        (130, 1, "ended after 30 s, or by a shutdown; the next slot resumes"),
        (143, 1, "ended after 30 s, or by a shutdown; the next slot resumes"),
        (137, 1, "could not run, or was killed"),
    ],
)
def test_a_slot_tries_status_3_again_and_reports_each_status_but_0(
    tmp_path: Path, status: int, attempts: int, why: str
) -> None:
    done = slot(tmp_path, f"echo x >> tried; echo the error >&2; exit {status}")
    assert done.returncode == status
    assert (tmp_path / "tried").read_text() == "x\n" * attempts
    assert done.stdout.startswith("the error\nslot.sh: ")
    assert f"exit status {status}: {why}: sh -c" in done.stdout


def test_a_slot_whose_second_attempt_completes_prints_nothing(tmp_path: Path) -> None:
    done = slot(tmp_path, "test -e tried && exit 0; touch tried; exit 3")
    assert (done.returncode, done.stdout) == (0, "")


def test_a_slot_that_is_over_ends_its_command_by_sigterm_and_keeps_the_status(tmp_path: Path) -> None:
    began = time.monotonic()
    done = slot(tmp_path, "trap 'echo in order; exit 143' TERM; sleep 20 & wait", seconds=1)
    assert done.returncode == 143
    assert done.stdout.startswith("in order\nslot.sh: exit status 143: ended after 1 s")
    assert time.monotonic() - began < 10


def test_a_slot_is_skipped_while_another_one_is_active(tmp_path: Path) -> None:
    # The second slot runs inside the first.
    inner = shlex.join([str(SLOT), "slot", "30", "1", "touch", "started"])
    done = slot(tmp_path, f"{inner} && ! test -e started")
    assert (done.returncode, done.stdout) == (0, "")


def test_no_other_user_can_lock_a_slot(tmp_path: Path) -> None:
    """Who may read a file may lock it, and so skip all slots in silence."""
    slot(tmp_path, "true")
    assert (tmp_path / "slot").stat().st_mode & 0o777 == 0o600


# --- systemd


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_each_unit(tmp_path: Path, unit: Path) -> None:
    assert shutil.which("systemd-analyze"), "systemd-analyze is missing (Debian: apt-get install systemd)"
    # With the command where it is here; the units name each other.
    for each in UNITS:
        text = each.read_text(encoding="utf-8").replace(INSTALLED, "/bin/true")
        (tmp_path / each.name).write_text(text, encoding="utf-8")
    verify = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=yes", str(tmp_path / unit.name)]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "mirror" in line]
    assert (done.returncode, ours) == (0, [])


def test_systemd_does_not_restart_a_stream_that_a_person_must_attend_to() -> None:
    unit = (SCHEDULES / "systemd" / "mirror-stream@.service").read_text(encoding="utf-8")
    statuses = f"2 {ATTENTION} {MIRRORMAKER_COPIES}"
    assert f"\nRestartPreventExitStatus={statuses}\n" in unit
    table = (ROOT / "jobs" / "OPERATE.md").read_text(encoding="utf-8")
    assert all(f"\n| {status} | " in table for status in statuses.split())


def test_systemd_understands_when_the_timers_elapse() -> None:
    for unit in UNITS:
        for when in re.findall(r"^OnCalendar=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE):
            subprocess.run(["systemd-analyze", "calendar", when], check=True, capture_output=True)


# --- all of them


def command_lines() -> list[tuple[str, list[str]]]:
    """The file and the words of each command that runs a copy or a verification."""
    found: list[tuple[str, list[str]]] = []
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".yaml":
            for document in yaml.safe_load_all(text):
                found += [(path.name, words) for words in _arguments(document)]
        else:
            found += [(path.name, shlex.split(line)) for line in re.findall(rf"{INSTALLED} (.*)$", text, re.MULTILINE)]
    return found


def _arguments(document: Any) -> list[list[str]]:
    if document["kind"] == "CronJob":
        (container,) = document["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        return [container["args"][container["args"].index("--config") - 1 :]]
    template = document["spec"]["template"]
    if document["kind"] == "Deployment":
        (container,) = template["spec"]["containers"]
        return [container["args"][container["args"].index("--config") - 1 :]]
    return [[template["mainApplicationFile"], *template["arguments"]]]


def test_each_command_line_is_one_that_our_commands_take() -> None:
    seen = []
    for name, (what, *arguments) in command_lines():
        kind = Path(what).stem
        if kind in {"run", "replicate", "stream"}:
            options = JobOptions.parse(arguments, script=name, description="", stream=kind == "stream")
            assert options.config.parent == Path("/etc/mirror")
        else:
            assert kind == "verify", (name, what)
            verification = VerifyOptions.parse(arguments, script=name, description="")
            assert verification.config.parent == Path("/etc/mirror")
        seen.append((name, kind))
    assert sorted(seen) == [
        ("cronjob.yaml", "replicate"),
        ("cronjob.yaml", "verify"),
        ("mirror-run@.service", "run"),
        ("mirror-stream@.service", "stream"),
        ("mirror-verify@.service", "verify"),
        ("mirror.crontab", "run"),
        ("mirror.crontab", "verify"),
        ("scheduledsparkapplication.yaml", "replicate"),
        ("stream.yaml", "stream"),
    ]


def test_what_kubernetes_mounts_is_what_the_commands_read() -> None:
    for path in sorted((SCHEDULES / "kubernetes").iterdir()):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            text = yaml.safe_dump(document)
            for folder in ("/etc/mirror", "/etc/mirror-secrets", "/var/mirror"):
                assert f"mountPath: {folder}\n" in text, (path.name, folder)


def test_the_image_has_what_the_objects_of_kubernetes_name() -> None:
    dockerfile = (ROOT / "config" / "kubernetes" / "Dockerfile").read_text(encoding="utf-8")
    text = "".join(path.read_text(encoding="utf-8") for path in (SCHEDULES / "kubernetes").iterdir())
    for name in set(re.findall(r"/opt/mirror/((?:jobs|config)/[\w./-]+)", text)):
        assert (ROOT / name).is_file()
        folder = name.split("/", 1)[0]
        assert f"COPY {name} /opt/mirror/{name}" in dockerfile or f"COPY {folder} /opt/mirror/{folder}" in dockerfile


def test_the_operator_has_the_settings_of_a_copy_on_kubernetes() -> None:
    lines = (ROOT / "config" / "kubernetes" / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    ours = dict(line.split(None, 1) for line in lines if line.startswith("spark."))
    document = yaml.safe_load((SCHEDULES / "kubernetes" / "scheduledsparkapplication.yaml").read_text(encoding="utf-8"))
    given = document["spec"]["template"]["sparkConf"]
    assert given == {name: value for name, value in ours.items() if name in given}
    elsewhere = ("spark.submit.", "spark.app.", "spark.kubernetes.", "spark.executor.", "spark.default.")
    assert {name for name in ours if not name.startswith(elsewhere)} == set(given)


def test_the_document_names_each_file_and_each_file_says_what_to_change() -> None:
    document = "".join((ROOT / "jobs" / name).read_text(encoding="utf-8") for name in ("README.md", "OPERATE.md"))
    for path in FILES:
        assert f"schedules/{path.relative_to(SCHEDULES)}" in document, path
        assert "CHANGE" in path.read_text(encoding="utf-8") or path == SLOT, path


def test_no_file_has_a_secret() -> None:
    for path in FILES:
        assert not re.search(r"(?i)\b(password|jaas|sasl|token)[\w.]*\s*[:=]", path.read_text(encoding="utf-8")), path
