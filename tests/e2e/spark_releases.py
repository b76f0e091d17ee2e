"""Environments with other releases of PySpark for tests, in ``build``: all but PySpark is that of the suite.

PySpark is pinned by its hash. ``python -m tests.e2e.spark_releases [RELEASE...]`` downloads it (320 to 450 MB each).
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mirror.sandbox.folders import locked

_TESTS: Final = Path(__file__).parents[1]
_BUILD: Final = _TESTS.parent / "build"
_PINS: Final = {
    "3.5": ("3.5.9", "ea27adc39ddac9413b8951e45aa748cbed6c785971b81386efc41938f6243d93"),
    "4.0": ("4.0.5", "a0d44b0e7faf0458ad83b7aa664e7ed8b96beed8a55d66ce3b0dfac2309dfca6"),
    "4.1": ("4.1.4", "bcbd5e18690cf79d438e97210ad06fb8d451a251bb77becc2b0418868d2acd73"),
    "4.2": ("4.2.1", "d79b7c8ee41e66a9202fe6f600ca90b931ca571ae9dbdf31c58d2672e5102da0"),
}
"""The newest patch of each release but the suite's own: version, SHA-256."""
OTHERS: Final = tuple(_PINS)
SUITE: Final = "4.3"
"""The release of all other tests, which requirements.txt locks."""
RELEASES: Final = (*OTHERS, SUITE)
CONNECT: Final = "4.2"
"""The release whose environment also has what Spark Connect needs."""
_FOR_CONNECT: Final = ("grpcio", "grpcio-status", "pandas", "zstandard")
_LOCK: Final = _TESTS / "schedules" / "requirements.txt"
"""Pins them with their hashes, for Airflow."""


def python_with(release: str) -> str:
    """Return the Python whose PySpark is of ``release``, one of :data:`RELEASES`. Makes the environment if needed."""
    if release == SUITE:
        return sys.executable
    version, digest = _PINS[release]
    home = _BUILD / f"pyspark-{version}"
    with locked(_BUILD):
        if not home.exists():
            packages = _FOR_CONNECT if release == CONNECT else ()
            _make(home, [f"pyspark=={version} --hash=sha256:{digest}", *packages])
    return str(home / "bin" / "python")


def _make(home: Path, requirements: Sequence[str]) -> None:
    # Renamed when it is complete; pip has no path of its own in it.
    with tempfile.TemporaryDirectory(prefix=".pyspark-", dir=home.parent) as work:
        fresh = Path(work) / "environment"
        venv.create(fresh, symlinks=True)
        python = fresh / "bin" / "python"
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(fresh), "platbase": str(fresh)}))
        # Behind its own packages: the PySpark of the suite is there, too. With .pth files, one of which has the mirror.
        suite = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        (packages / "suite.pth").write_text(suite, encoding="utf-8")
        wanted = Path(work) / "requirements.txt"
        wanted.write_text("\n".join(requirements), encoding="utf-8")
        options = [
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--ignore-installed",
            "--require-hashes",
            "--no-compile",
            *("--requirement", str(wanted)),
            *("--constraint", str(_LOCK)),
        ]
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
        subprocess.run([*pip, "install", *options], env={**os.environ, "PYTHONWARNINGS": "ignore"}, check=True)
        fresh.rename(home)


if __name__ == "__main__":
    for name in sys.argv[1:] or OTHERS:
        sys.stdout.write(f"{python_with(name)}\n")
