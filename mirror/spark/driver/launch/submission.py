"""Submit a job to Spark as a child process, and end it with all processes that it started.

::

    mirror run ─┬─ the driver's script ─┬─ two named pipes ──► stdout, stderr
                │                       └─ spark-submit (a JVM) ── Python workers
                └─ spark.log ◄── Spark's log, and the output of JVM and workers

The script starts the JVM, so that it imports, and checks the clusters, meanwhile. For a master on other hosts it is the
other way round: ``spark-submit`` knows how to bring the script there.

The child has a session of its own, so a terminal's Ctrl-C reaches only ``mirror run``, which forwards it. It forwards a
signal to the whole process group, because ``spark-submit`` alone would stop the JVM and leave the script. The Python
workers have a group of their own, and end when the JVM closes its end of their pipe.

Of a stream only the script receives the signal, and it ends in order, for which it needs the JVM. Processes
of the group that remain after its grace period are killed.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal, Self

from mirror.errors import FlowError
from mirror.extras import SPARK, install
from mirror.local_users import open_own
from mirror.spark.driver.launch.class_archive import WRITE_OPTION
from mirror.spark.driver.launch.host_user import has_name, java_options, temporary_folder
from mirror.spark.driver.launch.unfailing_output import unfailing
from mirror.spark.driver.report.report_lock import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from mirror.spark.driver.launch.class_archive import ClassArchive

GRACE_S: Final = 20.0
"""The time that a job has after a signal to write its summary and end, before it is killed."""

STDOUT_PIPE: Final = "MIRROR_JOB_STDOUT"
STDERR_PIPE: Final = "MIRROR_JOB_STDERR"
"""Variables of the script's environment: the named pipes that are copied to our stdout and stderr."""

TERMINALS: Final = "MIRROR_JOB_TERMINALS"
"""Variable of the script's environment: which of our ``stdout`` and ``stderr`` are terminals, separated by a comma."""

ENCODING: Final = "MIRROR_JOB_ENCODING"
"""Variable of the script's environment: the encoding of our ``stdout``; the pipes themselves are UTF-8."""

PYTHON: Final = "MIRROR_JOB_PYTHON"
"""Variable of the environment of Spark's processes: the interpreter that ``python.sh`` starts."""

SAFE_PATH: Final = "PYTHONSAFEPATH"
"""Python's own variable. Spark starts its Python processes with ``python -m``, which searches the current folder first:
a file ``mirror.py`` there, or another checkout, would be imported instead."""

_STANDARD: Final[tuple[Literal["stdout", "stderr"], ...]] = ("stdout", "stderr")
LOOPBACK: Final = "127.0.0.1"
DEFAULT_MASTER: Final = "local[*,4]"
"""All cores, and four attempts per task; ``local[N]`` alone never retries a task."""
WRITES_ARCHIVE: Final = "MIRROR_JOB_WRITES_ARCHIVE"
"""Variable of the script's environment, if its JVM writes an archive of its classes when it exits."""

_JVM_HAS_EXITED: Final = (0, 3)
"""The statuses of jobs that have ended in order, and waited for their JVM."""
_JOBS: Final = Path(__file__).parents[2] / "jobs"
"""The installed scripts: an installed wheel does not have those of the checkout."""
_LOG4J: Final = Path(__file__).with_name("log4j2.properties")
_PYTHON_SCRIPT: Final = Path(__file__).with_name("python.sh")
_ONE_COMPILER: Final = "-XX:TieredStopAtLevel=1"
"""Use only the fast compiler. This JVM moves no records, and optimised compilation took half of its CPU."""


def is_local(master: str) -> bool:
    """Return whether Spark runs the tasks in one JVM on this host."""
    return master == "local" or master.startswith("local[")


@dataclass(frozen=True, slots=True)
class Submission:
    """A job to submit."""

    arguments: Sequence[str]
    """The job's own arguments."""
    master: str
    report_dir: Path
    """Spark's log is written here, too."""
    guard: Sequence[str] = field(default=(), kw_only=True)
    """A command to put before the job's, which ends the job if this process is killed."""
    stream_grace_s: Callable[[], float] | None = field(default=None, kw_only=True)
    """Returns the time that a stream may take to end in order, which an edit may change; None: no stream."""
    on_progress: Callable[[str], None] = field(default=lambda _: None, kw_only=True)
    script: str = field(default="replicate.py", kw_only=True)
    """The script of a job that is no stream."""
    archive: ClassArchive | None = field(default=None, kw_only=True)
    """The archive of the JVM's classes."""

    @property
    def log(self) -> Path:
        """Spark's log of this run."""
        return self.report_dir.absolute() / "spark.log"

    def command(self) -> list[str]:
        """Return the command line. Raises FlowError if spark-submit is missing."""
        submit = Path(sys.executable).with_name("spark-submit")
        job = _JOBS / (self.script if self.stream_grace_s is None else "stream.py")
        if not submit.is_file():
            raise FlowError(f"{submit} is missing: {install(SPARK)}, or submit jobs/{job.name} yourself")
        if self.stream_grace_s is not None or is_local(self.master):
            return [sys.executable, str(job), *self.arguments]
        return [str(submit), *self._options, str(job), *self.arguments]

    @property
    def _options(self) -> list[str]:
        return ["--master", self.master, "--conf", "spark.ui.showConsoleProgress=false"]

    def environment(self, base: Mapping[str, str], pipes: Mapping[str, Path]) -> dict[str, str]:
        """Return the child's environment: this interpreter for driver and workers, Spark's log to a file.

        ``pipes`` are the values of :data:`STDOUT_PIPE` and :data:`STDERR_PIPE`.
        """
        # A SPARK_HOME of another installation would run another version of Spark than this project is locked to.
        inherited = {name: value for name, value in base.items() if name != "SPARK_HOME"}
        options = f'"-Dlog4j2.configurationFile={_LOG4J.as_uri()}" "-Dmirror.spark.log={self.log}"'
        # The JVM of a stream is killed before it could write an archive, and a cluster's may load other classes.
        write = self.stream_grace_s is None and is_local(self.master)
        of_archive = self.archive.options(base, write=write) if self.archive else ()
        temporary = temporary_folder()
        of_host = java_options(base, named=has_name(), temporary=temporary)
        of_jvm = [f'"{option}"' for option in (*of_archive, *of_host)]
        python = self._python()
        size = shutil.get_terminal_size()
        terminals = [name for name in _STANDARD if unfailing(name).isatty()]
        return {
            **inherited,
            PYTHON: sys.executable,
            SAFE_PATH: base.get(SAFE_PATH, "1"),
            "TMPDIR": temporary,
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
            # Ours first: of two contradicting options Java uses the last.
            "SPARK_SUBMIT_OPTS": " ".join(
                filter(None, (_ONE_COMPILER, *of_jvm, base.get("SPARK_SUBMIT_OPTS"), options))
            ),
            # The web page, if a user enables it, has no setting for its address (org.apache.spark.ui.WebUI).
            **({"SPARK_LOCAL_IP": base.get("SPARK_LOCAL_IP", LOOPBACK)} if is_local(self.master) else {}),
            # For a script that starts Spark itself.
            "PYSPARK_SUBMIT_ARGS": shlex.join([*self._options, "pyspark-shell"]),
            **{variable: str(pipe) for variable, pipe in pipes.items()},
            **({WRITES_ARCHIVE: "1"} if any(option.startswith(WRITE_OPTION) for option in of_archive) else {}),
            TERMINALS: ",".join(terminals),
            ENCODING: getattr(sys.stdout, "encoding", None) or "utf-8",
            **({"COLUMNS": str(size.columns), "LINES": str(size.lines)} if terminals else {}),
        }

    def _python(self) -> str:
        """Return the Python for Spark. On other hosts ``python.sh`` lacks the variable that names its Python."""
        local = is_local(self.master)
        return str(_PYTHON_SCRIPT) if local and os.access(_PYTHON_SCRIPT, os.X_OK) else sys.executable

    def run(self) -> int:
        """Submit, wait, and return the exit status: the job's, or 128 + the number of the signal that interrupted it.

        Raises FlowError if the job cannot be started, or ends without reporting an error. Leaves no process behind.
        """
        command = self.command()
        temporary_folder()  # the pipes need one, too
        # Locked for a moment, so that a run in progress keeps its log. The job takes the lock for as long as it runs.
        with locked(self.report_dir):
            log = self._empty_log()
        process = "Spark" if self.stream_grace_s is None else "the stream's driver"
        self.on_progress(f"starting {process} (master {self.master}); Spark's log is {self.report_dir / self.log.name}")
        with log, _Relay("stdout") as out, _Relay("stderr") as err, _Signals(self.stream_grace_s) as signals:
            environment = self.environment(os.environ, {STDOUT_PIPE: out.path, STDERR_PIPE: err.path})
            status = _supervise([*self.guard, *command], environment, log, (out, err), signals)
        if signals.is_repeated:
            self.on_progress("ended at once, as it was asked again: the next start resumes from the committed progress")
        if self.archive is not None:
            # Of a job that could not run, the JVM may have been killed while it wrote.
            self.archive.keep(whole=status in _JVM_HAS_EXITED and signals.received is None)
        if signals.received is not None and (self.stream_grace_s is None or status < 0):
            return 128 + signals.received
        if status < 0:
            raise FlowError(f"{process} was killed by {_signal(-status)}; its log is {self.log}")
        if status > 0 and not err.connected:
            raise FlowError(f"spark-submit ended with status {status}: {self._last_log_line()}; its log is {self.log}")
        return status

    def _empty_log(self) -> IO[bytes]:
        try:
            # Append, as log4j does: neither writer may overwrite the other.
            log = os.fdopen(open_own(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666), "ab")
            log.truncate(0)
        except OSError as error:
            raise FlowError(f"{self.log} cannot be written: {error.strerror}") from error
        return log

    def _last_log_line(self) -> str:
        """Return the log's last line that is not part of a Java stack trace."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        messages = [line.strip() for line in lines if line.strip() and not line.startswith(("\t", " "))]
        return messages[-1] if messages else "it printed nothing"


def _signal(number: int) -> str:
    """Return the name of a signal that has killed a job, with the usual cause and what to do if it has one."""
    if number == signal.SIGKILL:
        return (
            "signal 9 (SIGKILL), usually because memory has run out: give the host or the container more, or Spark"
            " fewer cores (--master 'local[2,4]')"
        )
    return f"signal {number} ({signal.strsignal(number)})"


def _supervise(
    command: Sequence[str], environment: Mapping[str, str], log: IO[bytes], relays: Sequence[_Relay], signals: _Signals
) -> int:
    """Start the child, forward signals, wait, and leave no process of its group behind."""
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
    )
    ended = threading.Event()

    def wait() -> None:  # Popen.wait with a time-out looks for the end 20 times a second
        child.wait()
        ended.set()

    threading.Thread(target=wait, name="mirror-wait", daemon=True).start()
    try:
        signals.forward_to(child.pid)
        while not ended.wait(timeout=0.5) and not signals.overdue():
            pass
        # After a signal the JVM may end before the script has written its summary.
        for relay in relays:
            while relay.connected and not relay.closed.wait(timeout=0.1) and not signals.overdue():
                pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    return child.wait()


class _Signals:
    """Records SIGINT and SIGTERM while the block runs, and forwards them to the child's process group."""

    def __init__(self, stream_grace_s: Callable[[], float] | None = None) -> None:
        """With ``stream_grace_s``, forward a signal to the child alone, which then has that time to end."""
        self._stream_grace_s: Final = stream_grace_s
        self.received: int | None = None
        self.is_repeated = False
        """Whether a second one has come: nothing is waited for any longer."""
        self._received_s = 0.0
        self._deadline: float | None = None
        self._group: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._before[signum] = signal.signal(signum, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _receive(self, signum: int, _frame: FrameType | None) -> None:
        if self.received is None:
            self.received, self._received_s = signum, time.monotonic()
            self._forward()
        else:
            self.is_repeated = True

    def forward_to(self, group: int) -> None:
        """Forward signals to this group; one that has arrived already is forwarded now."""
        self._group = group
        if self.received is not None:
            self._forward()

    def _forward(self) -> None:
        if self._group is not None and self.received is not None:
            with contextlib.suppress(ProcessLookupError):
                if self._stream_grace_s is None:
                    os.killpg(self._group, self.received)
                else:
                    os.kill(self._group, self.received)

    def overdue(self) -> bool:
        """Return whether the child's time to end is over."""
        if self.received is None or self.is_repeated:
            return self.is_repeated
        if self._deadline is None:
            grace_s = 0.0 if self._stream_grace_s is None else self._stream_grace_s()
            self._deadline = self._received_s + GRACE_S + grace_s
        return time.monotonic() > self._deadline


class _Relay:
    """A named pipe for the script's stdout or stderr, which a thread copies to ours until the script closes it."""

    def __init__(self, name: Literal["stdout", "stderr"]) -> None:
        self._name: Final = name
        self.connected = False
        """Whether the script has opened the pipe and sent its greeting, a NUL, without which that is not visible."""
        self.closed: Final = threading.Event()
        """Set when the script has closed the pipe, which it does by ending."""
        self._stop, self._asked = os.pipe()
        """Its end for reading can be read once the thread is to end."""
        self._folder: Final = tempfile.TemporaryDirectory(prefix="mirror-run-")
        self.path: Final = Path(self._folder.name) / name
        os.mkfifo(self.path, mode=0o600)
        # Non-blocking, because the script may never open the pipe.
        self._fd: Final = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self._thread: Final = threading.Thread(target=self._copy, name=f"mirror-{name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._asked)
        self._thread.join()
        os.close(self._fd)
        os.close(self._stop)
        self._folder.cleanup()

    def _copy(self) -> None:
        ours = unfailing(self._name)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        try:
            while (chunk := self._read()) is not None:
                # Whatever cannot be written, the pipe is read on: the script would wait for room in it for ever.
                with contextlib.suppress(Exception):
                    ours.write(decoder.decode(chunk))
                    ours.flush()
        finally:
            self.closed.set()

    def _read(self) -> bytes | None:
        """Return what the script has written, without greetings; None if it has closed the pipe, or at the stop."""
        readable, _, _ = select.select([self._fd, self._stop], [], [])
        # Everything written before the stop is still copied: the pipe is read before the end.
        chunk = os.read(self._fd, 65536) if self._fd in readable else b""
        self.connected = self.connected or bool(chunk)
        return chunk.replace(b"\0", b"") if chunk else None
