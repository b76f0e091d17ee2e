"""Submit the job to Spark as a child process, and end it with everything it started.

::

    mirror run ─┬─ spark-submit (a JVM) ─┬─ the driver's script ── two named pipes ──► stdout, stderr
                │                        └─ Python workers
                └─ spark.log ◄── Spark's log, and what JVM and workers print

The child has a session of its own, so that a terminal's Ctrl-C reaches only ``mirror run``, which passes it on. A
signal goes to the whole process group: ``spark-submit`` alone would stop the JVM and leave the script. The Python
workers have a group of their own and end when the JVM's end of their pipe closes.

A stream is started the other way round: the script starts the JVM. It alone gets the signal, and ends its epoch in
order, for which it needs the JVM; what is left of the group after its time is killed.
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
from mirror.spark.driver.report_lock import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

GRACE_S: Final = 20.0
"""How long a signalled job may take to write its summary and end, before it is killed."""

STDOUT_PIPE: Final = "MIRROR_JOB_STDOUT"
STDERR_PIPE: Final = "MIRROR_JOB_STDERR"
"""Environment of the script: the named pipes that are copied to our stdout and stderr."""

TERMINALS: Final = "MIRROR_JOB_TERMINALS"
"""Environment of the script: which of our ``stdout`` and ``stderr`` are terminals, separated by a comma."""

PYTHON: Final = "MIRROR_JOB_PYTHON"
"""Environment of Spark's processes: the interpreter that ``python.sh`` stands for."""

LOOPBACK: Final = "127.0.0.1"
BEGAN: Final = "MIRROR_JOB_BEGAN_MS"
"""Environment of the script: when it was submitted, in ms since 1970."""

_JOBS: Final = Path(__file__).parents[1] / "jobs"
"""Not those of the checkout, which an installed wheel has not."""
_LOG4J: Final = Path(__file__).with_name("log4j2.properties")
_PYTHON_SCRIPT: Final = Path(__file__).with_name("python.sh")
_QUICK: Final = "-XX:TieredStopAtLevel=1"
"""One compiler: this JVM moves no records, and half of its CPU went into compiling for a long life."""


def is_local(master: str) -> bool:
    """Whether Spark runs the tasks in this host's one JVM."""
    return master == "local" or master.startswith("local[")


@dataclass(frozen=True, slots=True)
class Submission:
    """What to submit: the job's own arguments, Spark's master, and the report folder (Spark's log goes there).

    ``guard`` is what to put before the command, so that the child ends with us also where nobody can stop it in order.
    ``stream_grace_s`` makes it a stream, and is how long that may take to end in order. ``doing`` hears at once what
    is begun.
    """

    arguments: Sequence[str]
    master: str
    report_dir: Path
    guard: Sequence[str] = field(default=(), kw_only=True)
    stream_grace_s: float | None = field(default=None, kw_only=True)
    doing: Callable[[str], None] = field(default=lambda _: None, kw_only=True)

    @property
    def log(self) -> Path:
        """Spark's log of this run."""
        return self.report_dir.absolute() / "spark.log"

    def command(self) -> list[str]:
        """The command line. Raises FlowError where spark-submit or the job is not where it should be."""
        submit = Path(sys.executable).with_name("spark-submit")
        job = _JOBS / ("replicate.py" if self.stream_grace_s is None else "stream.py")
        if not submit.is_file():
            raise FlowError(
                f"{submit} is missing: install pyspark beside the mirror, or submit jobs/{job.name} yourself"
            )
        if self.stream_grace_s is not None:
            return [sys.executable, str(job), *self.arguments]
        return [str(submit), *self._options, str(job), *self.arguments]

    @property
    def _options(self) -> list[str]:
        return ["--master", self.master, "--conf", "spark.ui.showConsoleProgress=false"]

    def environment(self, base: Mapping[str, str], pipes: Mapping[str, Path]) -> dict[str, str]:
        """The child's environment: this interpreter for driver and workers, Spark's log to a file.

        ``pipes`` are those of :data:`STDOUT_PIPE` and :data:`STDERR_PIPE`.
        """
        # A SPARK_HOME of another installation would run another Spark than the one this project is locked to.
        kept = {name: value for name, value in base.items() if name != "SPARK_HOME"}
        options = f'"-Dlog4j2.configurationFile={_LOG4J.as_uri()}" "-Dmirror.spark.log={self.log}"'
        python = self._python()
        size = shutil.get_terminal_size()
        terminals = [name for name, file in (("stdout", sys.stdout), ("stderr", sys.stderr)) if file.isatty()]
        return {
            **kept,
            PYTHON: sys.executable,
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
            # Ours first: of two that contradict each other, Java takes the last.
            "SPARK_SUBMIT_OPTS": " ".join(filter(None, (_QUICK, base.get("SPARK_SUBMIT_OPTS"), options))),
            # The web page, where a user asks for one, has no setting for its address (org.apache.spark.ui.WebUI).
            **({"SPARK_LOCAL_IP": base.get("SPARK_LOCAL_IP", LOOPBACK)} if is_local(self.master) else {}),
            # For a script that starts Spark itself.
            "PYSPARK_SUBMIT_ARGS": shlex.join([*self._options, "pyspark-shell"]),
            **{variable: str(pipe) for variable, pipe in pipes.items()},
            TERMINALS: ",".join(terminals),
            **({"COLUMNS": str(size.columns), "LINES": str(size.lines)} if terminals else {}),
        }

    def _python(self) -> str:
        """What Spark is to take for Python: on other hosts nobody tells the script which Python it stands for."""
        local = is_local(self.master)
        return str(_PYTHON_SCRIPT) if local and os.access(_PYTHON_SCRIPT, os.X_OK) else sys.executable

    def run(self) -> int:
        """Submit, wait, and return the exit status: the job's, or 128 + the signal that cut it short.

        Raises FlowError where the job cannot be started or ended without saying why. No process is left behind.
        """
        command = self.command()
        # Held for a moment, so that a run in progress keeps its log; the job takes the lock for as long as it runs.
        with locked(self.report_dir):
            log = self._empty_log()
        what = "Spark" if self.stream_grace_s is None else "the stream's driver"
        self.doing(f"starting {what} (master {self.master}); Spark's log is {self.report_dir / self.log.name}")
        with log, _Relay("stdout") as out, _Relay("stderr") as err, _Signals(self.stream_grace_s) as signals:
            began = {BEGAN: str(time.time_ns() // 1_000_000)}
            environment = self.environment({**os.environ, **began}, {STDOUT_PIPE: out.path, STDERR_PIPE: err.path})
            status = _supervise([*self.guard, *command], environment, log, (out, err), signals)
        if signals.received is not None and (self.stream_grace_s is None or status < 0):
            return 128 + signals.received
        if status < 0 or (status > 0 and not err.connected):
            raise FlowError(f"spark-submit ended with status {status}: {self._last_words()}; its log is {self.log}")
        return status

    def _empty_log(self) -> IO[bytes]:
        try:
            self.log.write_bytes(b"")
            # Append, as log4j does: neither writer may overwrite the other.
            return self.log.open("ab")
        except OSError as error:
            raise FlowError(f"the report folder {self.report_dir} cannot be written: {error.strerror}") from error

    def _last_words(self) -> str:
        """The log's last line that is not part of a Java stack trace."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        told = [line.strip() for line in lines if line.strip() and not line.startswith(("\t", " "))]
        return told[-1] if told else "it said nothing"


def _supervise(
    command: Sequence[str], environment: Mapping[str, str], log: IO[bytes], relays: Sequence[_Relay], signals: _Signals
) -> int:
    """Start the child, pass signals on, wait, and leave none of its process group behind."""
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
    )
    try:
        signals.forward_to(child.pid)
        while child.poll() is None and not signals.overdue():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=0.5)
        # A signalled JVM may be gone before the script has written its summary.
        for relay in relays:
            while relay.connected and not relay.closed.wait(timeout=0.1) and not signals.overdue():
                pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    return child.wait()


class _Signals:
    """SIGINT and SIGTERM while the block runs: remembered, and passed on to the child's process group.

    With ``stream_grace_s`` as SIGTERM to the child alone, which has so long to end.
    """

    def __init__(self, stream_grace_s: float | None = None) -> None:
        self._stream_grace_s: Final = stream_grace_s
        self.received: int | None = None
        self._deadline = float("inf")
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
            self.received = signum
            self._deadline = time.monotonic() + GRACE_S + (self._stream_grace_s or 0.0)
            self._pass_on()
        else:
            # Who asks twice does not want to wait.
            self._deadline = 0.0

    def forward_to(self, group: int) -> None:
        """From now on to this group; a signal that came before is passed on at once."""
        self._group = group
        if self.received is not None:
            self._pass_on()

    def _pass_on(self) -> None:
        if self._group is not None and self.received is not None:
            with contextlib.suppress(ProcessLookupError):
                if self._stream_grace_s is None:
                    os.killpg(self._group, self.received)
                else:
                    os.kill(self._group, self.received)

    def overdue(self) -> bool:
        """Whether the child has had its time to end."""
        return time.monotonic() > self._deadline


class _Relay:
    """A named pipe for the script's stdout or stderr, copied to ours by a thread until the script closes it.

    ``connected`` says that the script has opened it (it greets with a NUL, for else an open pipe could not be told from
    one that nobody has opened yet); ``closed`` that it has closed it, which it does by ending.
    """

    def __init__(self, name: Literal["stdout", "stderr"]) -> None:
        self._name: Final = name
        self.connected = False
        self.closed: Final = threading.Event()
        self._stop: Final = threading.Event()
        self._folder: Final = tempfile.TemporaryDirectory(prefix="mirror-run-")
        self.path: Final = Path(self._folder.name) / name
        os.mkfifo(self.path, mode=0o600)
        # Without waiting for the script: it may never come that far.
        self._fd: Final = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self._thread: Final = threading.Thread(target=self._copy, name=f"mirror-{name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        os.close(self._fd)
        self._folder.cleanup()

    def _copy(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        while True:
            # Asked before the look, so that what was written before the stop is still copied.
            stopping = self._stop.is_set()
            readable, _, _ = select.select([self._fd], [], [], 0.0 if stopping else 0.2)
            if not readable and not stopping:
                continue
            chunk = os.read(self._fd, 65536) if readable else b""
            if not chunk:
                self.closed.set()
                return
            self.connected = True
            self._pass_on(decoder.decode(chunk.replace(b"\0", b"")))

    def _pass_on(self, text: str) -> None:
        ours: IO[str] = getattr(sys, self._name)
        try:
            ours.write(text)
            ours.flush()
        except OSError as error:
            # Who reads no more does not stop a copy; and what is left in the buffer must not fail at our end.
            if not isinstance(error, BrokenPipeError) and self._name == "stdout":
                sys.stderr.write(f"mirror: cannot write to stdout: {error.strerror}\n")
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, ours.fileno())
            os.close(nowhere)
