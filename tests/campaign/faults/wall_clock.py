"""Wall clocks that are stepped under running processes: by libfaketime, while their monotonic clocks go on.

JVMs do not bear it (their waits are until a time of day): a Python has the library by its own wrapper, and a JVM that
a Python starts is started without it.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

_CHECKOUT: Final = Path(__file__).parents[3]
_LIBRARY: Final = "usr/lib/*/faketime/libfaketimeMT.so.1"
_PLACES: Final = (_CHECKOUT / "build" / "faketime", Path("/"))
_MORE: Final = {"PYTHONPATH": '"${PYTHONPATH:+:$PYTHONPATH}"'}
"""To this a script adds."""
# Python sleeps until a time of the monotonic clock, which the library (0.9.10) refuses if it leaves that clock alone.
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
    """What ``make faketime`` has unpacked, or the system has installed; None where there is neither."""
    return next((found for place in _PLACES for found in sorted(place.glob(_LIBRARY))), None)


class WallClock:
    """What the processes with :attr:`environ` take for the time of day; all its files are in ``folder``."""

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
            # The file is read again after so many seconds.
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            "PYTHONPATH": str(sleeping),
        }
        self.step(0)

    def step(self, seconds: int) -> None:
        """So far from the true time, from about now on."""
        fresh = self._offset.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n", encoding="ascii")
        fresh.replace(self._offset)

    def python(self) -> Path:
        """This interpreter, with this clock."""
        return _script(self._folder / "bin" / "python", self.environ, sys.executable)

    def java_home(self, java: Path) -> Path:
        """Where ``bin/java`` is ``java`` without this clock."""
        return _script(self._folder / "jre" / "bin" / "java", {"LD_PRELOAD": ""}, str(java)).parents[1]


def _script(path: Path, environ: dict[str, str], program: str) -> Path:
    shell = shutil.which("sh")
    assert shell is not None
    path.parent.mkdir(parents=True)
    exports = "".join(f"export {name}={shlex.quote(value)}{_MORE.get(name, '')}\n" for name, value in environ.items())
    path.write_text(f'#!{shell}\n{exports}exec {shlex.quote(program)} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path
