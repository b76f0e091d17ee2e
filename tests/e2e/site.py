"""A folder with a configuration and reports, `mirror run` in it as a user runs it, and what that left behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from mirror.spark.driver.session import DAEMON_MODULE
from tests.polling import eventually

MARK: Final = "MIRROR_E2E_SITE"
"""Environment variable of everything that a site starts, so that what is left of it can be found."""
WARNING: Final = "mirror: warning: "
DOING: Final = r"mirror: (\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d "
_RUN_WITHIN_S: Final = 500.0


def errors_in(err: str) -> str:
    """What is on stderr but for the lines, each with its time, that say what is being done."""
    return "".join(line for line in err.splitlines(keepends=True) if not re.match(DOING, line))


@dataclass(frozen=True, slots=True)
class Run:
    """How one `mirror run` ended. ``errors`` are the lines on stderr but for warnings, and what is being done."""

    status: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        return [line for line in errors_in(self.err).splitlines() if not line.startswith(WARNING)]


class Site:
    """One folder; every process started from here carries the folder in its environment."""

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder
        self.config: Final = folder / "mirror.toml"
        self.report: Final = folder / "report"
        self.python = sys.executable
        """Runs the commands: of an environment with the mirror."""
        self._started: Final = list[subprocess.Popen[str]]()

    def write(self, clusters: Mapping[str, str], flows: Mapping[str, str], **options: Mapping[str, object]) -> None:
        """Write the configuration: cluster -> address, flow -> its lines of TOML, and dotted keys by cluster."""
        lines = []
        for name, address in clusters.items():
            keys = {"bootstrap.servers": address, **options.get(name, {})}
            lines += [f"[clusters.{name}]", *(f'"{key}" = {json.dumps(value)}' for key, value in keys.items())]
        for name, text in flows.items():
            lines += [f"[flows.{name}]", text]
        self.config.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def command(self, name: str) -> list[str]:
        """The command line of ``mirror name`` for this configuration; -P: the installed command has no other path."""
        return [self.python, "-P", "-m", "mirror.cli", name, "--config", str(self.config)]

    def start(
        self, *arguments: str, command: str = "run", environ: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """``command`` is one that submits a job."""
        whole = [*self.command(command), "--report-dir", str(self.report), "--master", "local[2,4]", *arguments]
        return self.launch(whole, environ=environ)

    def launch(self, command: Sequence[str], *, environ: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Any program, with its output kept for :meth:`finish`."""
        child = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, **(environ or {}), MARK: str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._started.append(child)
        return child

    def run(self, *arguments: str, command: str = "run", environ: Mapping[str, str] | None = None) -> Run:
        return self.finish(self.start(*arguments, command=command, environ=environ))

    def ask(self, command: str, *arguments: str) -> str:
        """What another command says on stdout; it must go well."""
        done = subprocess.run(
            [*self.command(command), *arguments], cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def finish(self, child: subprocess.Popen[str]) -> Run:
        with child:
            try:
                out, err = child.communicate(timeout=_RUN_WITHIN_S)
            except BaseException:
                self.kill()
                raise
        return Run(child.returncode, out, err)

    def flows(self) -> dict[str, dict[str, Any]]:
        """The summary's flows by name."""
        summary = json.loads((self.report / "summary.json").read_text(encoding="utf-8"))
        return {flow["flow"]: flow for flow in summary["flows"]}

    def partitions(self, flow: str) -> dict[tuple[str, int], dict[str, Any]]:
        """A flow's results by topic and partition."""
        return {(each["topic"], each["partition"]): each for each in self.flows()[flow]["partitions"]}

    def processes(self) -> list[psutil.Process]:
        """Everything alive that was started from here."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == str(self.folder) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def workers(self) -> list[psutil.Process]:
        """Spark's Python workers: what its daemon has forked, and not the daemon."""
        return [process for process in self.processes() if is_forked(process, DAEMON_MODULE)]

    def kill(self) -> None:
        """SIGKILL all of it at once, as the end of a container or host does, and wait for its end."""
        until = time.monotonic() + 60
        while running := self.processes():
            assert time.monotonic() < until, f"could not kill {running}"
            for process in running:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            # One may have been on its way to start another. Who waits here with psutil takes a child's status away.
            time.sleep(0.02)
        for child in self._started:  # a test may have failed before it waited for it
            with child:
                pass

    def await_end(self) -> None:
        """Fail unless all of it ends by itself."""
        eventually(lambda: not self.processes(), within_s=60, what="the end of every process of the run")


def flow(source: str, target: str, topics: Sequence[str], *lines: str) -> str:
    """A flow's TOML."""
    return "\n".join([f'source = "{source}"', f'target = "{target}"', f"topics = {json.dumps(list(topics))}", *lines])


def is_forked(process: psutil.Process, word: str) -> bool:
    """Return whether Spark's daemon has forked the process, which then has the daemon's command line, with ``word``."""
    try:
        parent = process.parent()
    except psutil.Error:
        return False
    return parent is not None and all(word in command_of(one) for one in (process, parent))


def command_of(process: psutil.Process) -> list[str]:
    """Return the words of its command line; none if it has ended."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
