"""The files of jobs/schedules, as far as this host can check them at once. test_tools.py has Airflow and Kubernetes."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from mirror.exit_status import ATTENTION, HELD
from mirror.spark.driver.job_options import JobOptions
from mirror.spark.driver.verify_options import VerifyOptions
from tests.schedules.tools import ROOT, SCHEDULES

SLOT = SCHEDULES / "cron" / "slot.sh"
SYSTEMD = SCHEDULES / "systemd"
HARDENING = SYSTEMD / "mirror-.service.d" / "hardening.conf"
UNITS = sorted(path for path in SYSTEMD.iterdir() if path.is_file())
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
    # A slot that waits for the sleep is itself ended after 30 s; a shell has set its trap within 2 s.
    done = slot(tmp_path, "trap 'echo in order; exit 143' TERM; sleep 60 & wait", seconds=2)
    assert done.returncode == 143
    assert done.stdout.startswith("in order\nslot.sh: exit status 143: ended after 2 s")


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


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The units, whose command is one that is here."""
    assert shutil.which("systemd-analyze"), "systemd-analyze is missing (Debian: apt-get install systemd)"
    folder = tmp_path_factory.mktemp("systemd") / "units"
    shutil.copytree(SYSTEMD, folder)
    for each in UNITS:
        (folder / each.name).write_text(each.read_text("utf-8").replace(INSTALLED, "/bin/true"), "utf-8")
    return folder


def analyze(units: Path, *arguments: str) -> tuple[int, str]:
    # The colon has it find the units of this host, too, which ours name.
    environment = {"PATH": "/usr/bin:/bin", "SYSTEMD_UNIT_PATH": f"{units}:"}
    done = subprocess.run(["systemd-analyze", *arguments], env=environment, capture_output=True, text=True, check=False)
    return done.returncode, "".join(line for line in done.stderr.splitlines(keepends=True) if "mirror" in line)


def test_systemd_accepts_each_unit(units: Path) -> None:
    paths = [str(units / unit.name) for unit in UNITS]
    assert analyze(units, "verify", "--man=no", "--recursive-errors=yes", *paths) == (0, "")


def test_systemd_rates_each_service_as_little_exposed(units: Path) -> None:
    services = [unit.name.replace("@", "@x") for unit in UNITS if unit.suffix == ".service"]
    assert len(services) == 4
    for service in services:
        assert analyze(units, "security", "--offline=yes", "--threshold=22", service)[0] == 0, service


def test_no_folder_is_shared_by_services_of_several_users() -> None:
    """systemd gives a folder that exists to the user of the service that starts, with all that is in it."""
    hardening = HARDENING.read_text("utf-8")
    found = re.findall(r"^(?:CacheDirectory=|Environment=XDG_CACHE_HOME=%C/)(.*)$", hardening, re.MULTILINE)
    assert len(found) == 2
    assert found[0] == found[1]
    users: dict[str, set[str]] = {}
    for unit in UNITS:
        if unit.suffix == ".service":
            user = re.findall(r"^User=(.*)$", unit.read_text("utf-8"), re.MULTILINE)
            users.setdefault(found[0].replace("%p", unit.name.partition("@")[0]), set()).add(*(user or ["root"]))
    assert all(len(of_folder) == 1 for of_folder in users.values()), users


def test_systemd_does_not_restart_a_stream_that_a_person_must_attend_to() -> None:
    unit = (SCHEDULES / "systemd" / "mirror-stream@.service").read_text(encoding="utf-8")
    statuses = f"2 {ATTENTION} {HELD}"
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
        found += [(path.name, shlex.split(line)) for line in re.findall(rf'{INSTALLED} ([^"\n]*)', text)]
    return found


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
        ("mirror-run@.service", "run"),
        ("mirror-stream@.service", "stream"),
        ("mirror-verify@.service", "verify"),
        ("mirror.crontab", "run"),
        ("mirror.crontab", "verify"),
        ("mirror_jobs.py", "run"),
    ]


def test_the_document_names_each_file_and_each_file_says_what_to_change() -> None:
    document = "".join((ROOT / "jobs" / name).read_text(encoding="utf-8") for name in ("INSTALL.md",))
    for path in FILES:
        assert f"schedules/{path.relative_to(SCHEDULES)}" in document, path
        assert "CHANGE" in path.read_text(encoding="utf-8") or path in {SLOT, HARDENING}, path


@pytest.mark.parametrize(
    ("statuses", "final"),
    [(None, False), ([], False), ([("base", 2)], True), ([("base", 3)], False), ([("istio", 2)], False)],
)
def test_a_pod_of_airflow_fails_at_once_only_by_its_own_final_status(
    monkeypatch: pytest.MonkeyPatch, statuses: list[tuple[str, int]] | None, final: bool
) -> None:
    """None: there is no pod. Airflow itself is not in this environment; test_tools.py has it."""

    class Failed(Exception):
        pass

    class FailedFinally(Failed):
        pass

    class Operator:
        base_container_name = "base"

        def __init__(self, **_: object) -> None:
            pass

        def cleanup(self, *_: object) -> None:
            raise Failed("the pod has failed")

    modules: dict[str, dict[str, object]] = {
        "airflow.providers.cncf.kubernetes.operators.pod": {"KubernetesPodOperator": Operator},
        "airflow.sdk": {"DAG": lambda *_, **__: nullcontext()},
        "airflow.sdk.exceptions": {"AirflowException": Failed, "AirflowFailException": FailedFinally},
    }
    for name, content in modules.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**content))
    pods = runpy.run_path(str(SCHEDULES / "airflow" / "mirror_pods.py"))
    ended = [
        SimpleNamespace(name=name, state=SimpleNamespace(terminated=SimpleNamespace(exit_code=code)))
        for name, code in statuses or ()
    ]
    pod = None if statuses is None else SimpleNamespace(status=SimpleNamespace(container_statuses=ended or None))
    with pytest.raises(Failed) as raised:
        pods["MirrorPod"](final={1, 2, 4}).cleanup(None, pod)
    assert isinstance(raised.value, FailedFinally) is final


def test_no_file_has_a_secret() -> None:
    for path in FILES:
        assert not re.search(r"(?i)\b(password|jaas|sasl|token)[\w.]*\s*[:=]", path.read_text(encoding="utf-8")), path
