"""Wrong wall clocks, by libfaketime: stepped while processes run, or at a constant offset from their start.

Monotonic clocks are left alone. JVMs tolerate only a constant offset, so that the stream's Python processes have the
library by a wrapper, and the JVMs that Python starts are started without it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Self

import psutil

_CHECKOUT: Final = Path(__file__).parents[3]
_LIBRARY: Final = "usr/lib/*/faketime/libfaketimeMT.so.1"
_PLACES: Final = (_CHECKOUT / "build" / "faketime", Path("/"))
_APPENDED: Final = {"PYTHONPATH": '"${PYTHONPATH:+:$PYTHONPATH}"'}
"""What a script appends to its own value of a variable."""
_CACHE_S: Final = 1
"""How often libfaketime reads the offset's file."""
# Python sleeps until a time of the monotonic clock, which libfaketime 0.9.10 refuses if it leaves that clock alone.
_SLEEP: Final = '''"""Has Python sleep by select."""
import select
import time


def sleep(seconds):
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], seconds)


time.sleep = sleep
'''


def library() -> Path | None:
    """Return the library of ``make faketime``, or that of the system; None where there is neither."""
    return next((found for place in _PLACES for found in sorted(place.glob(_LIBRARY))), None)


class WallClock:
    """The clock of all processes that have :attr:`environ`. All its files are in ``folder``."""

    def __init__(self, folder: Path, faketime: Path) -> None:
        folder.mkdir()
        self._folder: Final = folder
        self._offset: Final = folder / "offset"
        sleeping = folder / "python"
        sleeping.mkdir()
        (sleeping / "sitecustomize.py").write_text(_SLEEP, encoding="utf-8")
        self.environ: Final = {
            "LD_PRELOAD": str(faketime),
            "FAKETIME_TIMESTAMP_FILE": str(self._offset),
            "FAKETIME_CACHE_DURATION": str(_CACHE_S),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            "PYTHONPATH": str(sleeping),
        }
        self.step(0)

    def step(self, seconds: int) -> None:
        """Set the clock that far from the true time, for running processes within a second."""
        fresh = self._offset.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n", encoding="ascii")
        fresh.replace(self._offset)

    def measured(self) -> float:
        """Return how far the clock of a new process is from the true time, in seconds."""
        environ = {**os.environ, **self.environ}
        command = [sys.executable, "-I", "-S", "-c", "import time; print(time.time())"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        return float(done.stdout) - time.time()

    def users(self, processes: Iterable[psutil.Process]) -> list[psutil.Process]:
        """Return those ``processes`` that have this clock."""
        variable = "FAKETIME_TIMESTAMP_FILE"
        found = []
        for process in processes:
            with contextlib.suppress(psutil.Error):
                is_ours = process.environ().get(variable) == self.environ[variable]
                if is_ours and any("libfaketime" in mapped.path for mapped in process.memory_maps()):
                    found.append(process)
        return found

    def python(self) -> Path:
        """Return a program that is this interpreter with this clock."""
        return _script(self._folder / "bin" / "python", self.environ, sys.executable)

    def java_home(self, java: Path) -> Path:
        """Return a folder whose ``bin/java`` is ``java`` without this clock."""
        return _script(self._folder / "jre" / "bin" / "java", {"LD_PRELOAD": ""}, str(java)).parents[1]


class BrokerClock:
    """Starts brokers whose clock is at a constant offset."""

    def __init__(self, faketime: Path) -> None:
        self._faketime: Final = faketime

    @classmethod
    def available(cls) -> Self | None:
        """Return None where there is no libfaketime."""
        found = library()
        return None if found is None else cls(found)

    @contextlib.contextmanager
    def offset(self, seconds: int) -> Iterator[None]:
        """Have every process that is started in this block live ``seconds`` from the true time."""
        environ = {
            "LD_PRELOAD": str(self._faketime),
            "FAKETIME": f"{seconds:+d}",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            # Otherwise libfaketime 0.9.10 has the timed waits of a JVM return at once, and the JVM spins.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }
        before = {name: os.environ.get(name) for name in environ}
        os.environ.update(environ)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _script(path: Path, environ: dict[str, str], program: str) -> Path:
    shell = shutil.which("sh")
    assert shell is not None
    path.parent.mkdir(parents=True)
    exports = "".join(
        f"export {name}={shlex.quote(value)}{_APPENDED.get(name, '')}\n" for name, value in environ.items()
    )
    path.write_text(f'#!{shell}\n{exports}exec {shlex.quote(program)} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path
