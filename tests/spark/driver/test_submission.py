"""Submitting: the command, and real child processes that are signalled, killed and listened to."""

from __future__ import annotations

import ast
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import psutil
import pyspark
import pytest

from mirror.errors import FlowError
from mirror.spark.driver.launch import submission
from mirror.spark.driver.launch.submission import PYTHON, STDERR_PIPE, STDOUT_PIPE, TERMINALS, Submission
from tests.polling import eventually

ROOT = Path(__file__).parents[3]
SCRIPT = Path(submission.__file__).with_name("python.sh")

Handler = Callable[[int, FrameType | None], None]

LISTENING = """
import os, pathlib, signal, subprocess, sys, time
out, pipe = (open(os.environ[f"MIRROR_JOB_{name}"], "w", 1, "utf-8") for name in ("STDOUT", "STDERR"))
for each in (out, pipe):
    each.write("\\0")
"""
"""How every child of these tests begins: as the job's script does, it opens the pipes and greets."""


@dataclass(frozen=True, slots=True)
class Scripted(Submission):
    """Runs a Python program in the place of spark-submit."""

    program: str = ""

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.program]


def scripted(program: str, folder: Path) -> Submission:
    return Scripted([], "local", folder / "report", LISTENING + program)


def asked_of_spark_s_python(expression: str, environment: Mapping[str, str]) -> str:
    command = [environment["PYSPARK_PYTHON"], "-c", f"import os, sys; print({expression})"]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.rstrip("\n")


def signal_once_there(path: Path, signum: int) -> threading.Thread:
    """Signal this process when the child has made ``path``; a child that never does runs into the test's limit."""

    def act() -> None:
        eventually(path.exists)
        os.kill(os.getpid(), signum)

    thread = threading.Thread(target=act)
    thread.start()
    return thread


@pytest.fixture
def own_handlers() -> Iterator[dict[signal.Signals, Handler]]:
    """What handles signals in this process before and after a run: nothing, and so a late one does no harm."""

    def ignore(_signum: int, _frame: FrameType | None) -> None:
        """Not SIG_IGN: children would inherit it."""

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, ignore) for number in numbers}
    yield dict.fromkeys(numbers, ignore)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_on_other_hosts_the_command_is_this_environment_s_spark_submit() -> None:
    command = Submission(["--config", "x.toml"], "spark://host:7077", Path("r")).command()
    assert command[0] == str(Path(sys.executable).with_name("spark-submit"))
    assert command[1:3] == ["--master", "spark://host:7077"]
    assert command[-3].endswith("jobs/replicate.py")
    assert command[-2:] == ["--config", "x.toml"]


def test_a_local_job_starts_spark_itself(tmp_path: Path) -> None:
    """So that the JVM starts while the script imports, and checks the clusters."""
    local = Submission(["--config", "x.toml"], "local[3]", tmp_path)
    interpreter, script, *arguments = local.command()
    assert (interpreter, arguments) == (sys.executable, ["--config", "x.toml"])
    assert script.endswith("jobs/replicate.py")
    assert local.environment({}, {})["PYSPARK_SUBMIT_ARGS"].startswith("--master 'local[3]' ")
    assert Submission([], "local[3]", tmp_path, script="verify.py").command()[-1].endswith("jobs/verify.py")


@pytest.mark.parametrize("name", ["replicate.py", "stream.py", "verify.py"])
def test_what_is_installed_is_what_the_checkout_has(name: str) -> None:
    checkout = Path(__file__).parents[3] / "jobs" / name
    installed = Path(submission.__file__).parents[2] / "jobs" / name
    assert [ast.dump(each) for each in ast.parse(installed.read_text()).body[1:]] == [
        ast.dump(each) for each in ast.parse(checkout.read_text()).body[1:]
    ]


def test_the_child_s_environment(tmp_path: Path) -> None:
    base = {"SPARK_HOME": "/elsewhere", "SPARK_SUBMIT_OPTS": "-Dmine=1", "KEPT": "1"}
    pipes = {STDOUT_PIPE: tmp_path / "out", STDERR_PIPE: tmp_path / "err"}
    made = Submission([], "local", tmp_path / "a b").environment(base, pipes)
    assert made["PYSPARK_PYTHON"] == made["PYSPARK_DRIVER_PYTHON"] == str(SCRIPT)
    assert made[PYTHON] == sys.executable
    assert "SPARK_HOME" not in made
    assert made["KEPT"] == "1"
    assert made["PYTHONSAFEPATH"] == "1"
    assert made["SPARK_SUBMIT_OPTS"].startswith("-XX:TieredStopAtLevel=1 -Dmine=1 ")
    assert f'"-Dmirror.spark.log={tmp_path}/a b/spark.log"' in made["SPARK_SUBMIT_OPTS"]
    assert (made[STDOUT_PIPE], made[STDERR_PIPE]) == (str(tmp_path / "out"), str(tmp_path / "err"))
    assert made[TERMINALS] == ""


def test_a_local_master_s_web_page_is_for_this_machine_alone(tmp_path: Path) -> None:
    """It is off, but a user may switch it on; an address that is set already stands."""
    of_local, of_cluster = (Submission([], each, tmp_path) for each in ("local[2,4]", "spark://host:7077"))
    assert of_local.environment({}, {})["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert of_local.environment({"SPARK_LOCAL_IP": "10.1.2.3"}, {})["SPARK_LOCAL_IP"] == "10.1.2.3"
    assert "SPARK_LOCAL_IP" not in of_cluster.environment({}, {})


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "local-cluster[2,1,1024]"])
def test_other_hosts_get_the_path_of_the_interpreter(master: str, tmp_path: Path) -> None:
    made = Submission([], master, tmp_path).environment({}, {})
    assert made["PYSPARK_PYTHON"] == made["PYSPARK_DRIVER_PYTHON"] == sys.executable


@pytest.mark.parametrize("master", ["local", "local[*,4]"])
def test_spark_s_python_is_this_one(master: str, tmp_path: Path) -> None:
    made = Submission([], master, tmp_path).environment(os.environ, {})
    assert asked_of_spark_s_python("sys.executable", made) == sys.executable


@pytest.mark.parametrize("times", [1, 2])
def test_an_installed_spark_s_python_code_is_taken_unpacked(times: int, tmp_path: Path) -> None:
    """Of a zip nothing stays compiled. What else a user has on the path stays, and where it is.

    But an empty entry, which is the current folder, does not.
    """
    home = Path(pyspark.__file__).parent
    (zipped,) = home.glob("python/lib/py4j-*-src.zip")
    (jar,) = home.glob("jars/spark-core_*.jar")
    packed = home / "python/lib/pyspark.zip"
    spark = ":".join(map(str, [packed, zipped, jar] * times))
    mine = f"{tmp_path}/a b:{tmp_path}/*::{Path(submission.__file__).parents[3]}"
    made = Submission([], "local", tmp_path).environment(os.environ, {})
    made |= {"SPARK_HOME": str(home), "PYTHONPATH": f"{spark}:{mine}"}
    assert asked_of_spark_s_python("os.environ['PYTHONPATH']", made) == mine.replace("::", ":")
    assert asked_of_spark_s_python("__import__('pyspark').__file__", made) == pyspark.__file__


def test_the_python_code_of_another_spark_is_used_as_it_is(tmp_path: Path) -> None:
    """That of a distribution is another one than that of this environment, and lies in its zips only."""
    result = f"{tmp_path}/python/lib/pyspark.zip:{tmp_path}/mine"
    made = Submission([], "local", tmp_path).environment(os.environ, {})
    made |= {"SPARK_HOME": str(tmp_path), "PYTHONPATH": result}
    assert asked_of_spark_s_python("os.environ['PYTHONPATH']", made) == result


@pytest.mark.parametrize("status", [0, 1, 3])
def test_status_and_streams_are_the_script_s(status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What anybody else prints is in the log, so that stdout is for programs to read."""
    program = f"""
print('noise', flush=True)
print('more', file=sys.stderr)
pipe.write('mirror: grün\\n')
out.write('a' * 200_000 + '\\n')
sys.exit({status})
"""
    made = scripted(program, tmp_path)
    assert made.run() == status
    result = capsys.readouterr()
    assert (result.out, result.err) == ("a" * 200_000 + "\n", "mirror: grün\n")
    assert made.log.read_text() == "noise\nmore\n"


def test_the_log_holds_this_run_only(tmp_path: Path) -> None:
    made = scripted("print('noise', file=sys.stderr)", tmp_path)
    made.run()
    made.run()
    assert made.log.read_text() == "noise\n"


def test_the_log_is_not_written_through_a_link(tmp_path: Path) -> None:
    """Say into this user's authorized_keys, from a folder in which another user has put the link."""
    made = scripted("", tmp_path)
    made.report_dir.mkdir()
    (tmp_path / "keys").write_text("precious")
    made.log.symlink_to(tmp_path / "keys")
    with pytest.raises(FlowError, match=rf"^{made.log} cannot be written: it is a symbolic link"):
        made.run()
    assert (tmp_path / "keys").read_text() == "precious"


@pytest.mark.parametrize("module", ["mirror.spark.worker_daemon", "pyspark.daemon"])
def test_spark_s_python_processes_import_nothing_from_the_current_folder(tmp_path: Path, module: str) -> None:
    """Also those that plan, for which Spark has no setting. They end with their stdin; the first output is a port."""
    for package in ("mirror", "pyspark"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise ImportError('this is a file of the current folder')")
    environ = Submission([], "local", tmp_path).environment(
        {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": "x", "PYTHONPATH": str(ROOT)}, {}
    )
    command = [environ["PYSPARK_PYTHON"], "-m", module, "pyspark.worker"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, input=b"", capture_output=True, check=False)
    assert b"ImportError" not in done.stderr
    assert len(done.stdout) == 4, done.stderr


def test_a_child_that_never_listens_is_explained_by_its_log(tmp_path: Path) -> None:
    program = "import sys; print('JAVA_HOME is not set', file=sys.stderr); sys.exit(1)"
    made = Scripted([], "local", tmp_path, program)
    with pytest.raises(FlowError, match=r"ended with status 1: JAVA_HOME is not set; its log is .*spark\.log"):
        made.run()


@pytest.mark.parametrize(
    ("signum", "line"),
    [
        (
            signal.SIGKILL,
            r"^Spark was killed by signal 9 \(SIGKILL\), usually because memory has run out: .*spark\.log$",
        ),
        (signal.SIGSEGV, r"^Spark was killed by signal 11 \(Segmentation fault\); its log is .*spark\.log$"),
    ],
)
def test_a_child_that_is_killed_is_explained_by_its_signal(tmp_path: Path, signum: signal.Signals, line: str) -> None:
    program = f"import os; print('a WARN of Spark', flush=True); os.kill(os.getpid(), {signum.value})"
    with pytest.raises(FlowError, match=line) as caught:
        Scripted([], "local", tmp_path, program).run()
    assert "WARN" not in str(caught.value), "the last line of the log has nothing to do with it"


def test_a_report_folder_that_cannot_be_created_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("a file")
    with pytest.raises(FlowError, match=r"the report folder .* cannot be used: File exists"):
        scripted("", tmp_path).run()


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_forwarded_and_the_script_may_end_in_order(
    signum: signal.Signals,
    status: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    own_handlers: dict[signal.Signals, Handler],
) -> None:
    # As under spark-submit: the leader (the JVM) dies of the signal at once, its child still has to write something.
    program = f"""
signal.signal({signum.value}, signal.SIG_DFL)
child = os.fork()
if child == 0:
    def leave(*_):
        time.sleep(0.3)
        pipe.write("goodbye\\n")
        out.write("{{}}\\n")
        os._exit(0)
    signal.signal({signum.value}, leave)
    pathlib.Path({str(tmp_path / "there")!r}).write_text(str(os.getpid()))
    while True:
        signal.pause()
pipe.close()
out.close()
while True:
    signal.pause()
"""
    waiting = signal_once_there(tmp_path / "there", signum)
    assert scripted(program, tmp_path).run() == status
    waiting.join()
    result = capsys.readouterr()
    assert (result.out, result.err) == ("{}\n", "goodbye\n")
    assert signal.getsignal(signum) is own_handlers[signum]


def test_a_second_signal_ends_the_wait_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_handlers: dict[signal.Signals, Handler]
) -> None:
    del own_handlers
    monkeypatch.setattr(submission, "GRACE_S", 120.0)
    program = f"""
signal.signal(signal.SIGTERM, signal.SIG_IGN)
stubborn = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
pathlib.Path({str(tmp_path / "there")!r}).write_text(f"{{os.getpid()}} {{stubborn.pid}}")
while True:
    signal.pause()
"""

    over, said = threading.Event(), list[str]()

    def twice() -> None:
        eventually(lambda: (tmp_path / "there").exists() and " " in (tmp_path / "there").read_text())
        while not over.wait(0.1):  # two that come before the first is taken are one
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=twice)
    thread.start()
    began = time.monotonic()
    try:
        assert replace(scripted(program, tmp_path), on_progress=said.append).run() == 143
    finally:
        over.set()
        thread.join()
    assert time.monotonic() - began < submission.GRACE_S / 2
    assert "ended at once" in said[-1]
    pids = [int(pid) for pid in (tmp_path / "there").read_text().split()]
    eventually(lambda: not any(alive(pid) for pid in pids))


TALKING = """
import sys
from pathlib import Path
from tests.spark.driver.test_submission import scripted

sys.exit(scripted("for _ in range(1000): out.write('a' * 1000 + chr(10))", Path(sys.argv[1])).run())
"""
"""A process that submits as `mirror run` does, with a child that prints more than pipes hold."""


def test_a_copy_continues_if_the_reader_of_its_output_ends(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", TALKING, str(tmp_path)]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as talking:
        assert talking.stdout is not None
        assert talking.stderr is not None
        talking.stdout.close()
        assert talking.stderr.read() == b""
    assert talking.returncode == 0


OWNER = """
import os, sys
from dataclasses import dataclass, replace
from pathlib import Path
from mirror.sandbox import die_with_owner
from mirror.spark.driver.launch.submission import Submission

@dataclass(frozen=True, slots=True)
class Sleeping(Submission):
    def command(self):
        program = "import os, signal, sys; print(os.getpid(), file=open(sys.argv[1], 'w'), flush=True); signal.pause()"
        return [sys.executable, "-c", program, str(self.report_dir / "there")]

guard = [sys.executable, "-I", "-S", die_with_owner.__file__, str(os.getpid())]
Sleeping([], "local", Path(sys.argv[1]), guard=guard).run()
"""
"""A process that submits as `mirror run` does, with a child that would never end."""


def test_the_child_ends_with_a_submitter_that_was_killed(tmp_path: Path) -> None:
    # It cannot remove its pipe.
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], env=environ) as owner:
        try:
            there = tmp_path / "there"
            eventually(lambda: there.exists() and there.read_text().endswith("\n"))
            child = psutil.Process(int(there.read_text()))
            assert child.ppid() == owner.pid
        finally:
            owner.kill()
    try:
        eventually(lambda: not alive(child.pid))
    finally:
        if alive(child.pid):
            child.kill()


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_run_ends_in_order_whatever_its_output_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.StringIO):
        def write(self, _: str) -> int:
            raise RuntimeError("a bug")

    monkeypatch.setattr(submission, "unfailing", lambda _: Broken())
    assert scripted("for _ in range(1000): out.write('a' * 1000 + chr(10))\nsys.exit(3)", tmp_path).run() == 3


def test_the_time_that_a_stream_has_to_end_is_that_of_the_configuration_when_it_is_asked_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(submission, "GRACE_S", 0.0)
    grace_s = [-1.0]
    signals = submission._Signals(lambda: grace_s[-1])
    assert not signals.overdue()
    grace_s.append(60.0)
    signals._receive(signal.SIGTERM, None)
    assert not signals.overdue()
    hasty = submission._Signals(lambda: -1.0)
    hasty._receive(signal.SIGTERM, None)
    assert hasty.overdue()
