"""Downloads Apache Kafka's jars with the Ivy that is part of PySpark, and verifies their checksums.

``jars.sha256`` lists the jars and their SHA-256 in the format of ``sha256sum``. The list was made from a download that
Ivy had verified with the checksums of the repository; only listed files are added to a class path. To change the
release, change ``ivy.xml`` and :data:`KAFKA_VERSION`, let Ivy download into an empty folder, and make the list again
with ``sha256sum *.jar``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from mirror.errors import SandboxError
from mirror.extras import SPARK, install
from mirror.sandbox.folders import cache_folder, locked
from mirror.sandbox.java import Java, find_java

KAFKA_VERSION: Final = "4.3.0"
KAFKA: Final = f"Apache Kafka {KAFKA_VERSION}"
HOME_VARIABLE: Final = "MIRROR_KAFKA_HOME"
_HERE: Final = Path(__file__).parent
_DOWNLOAD_TIMEOUT_S: Final = 1800


def kafka_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder whose ``jars`` folder has, or will have, the jars: ``$MIRROR_KAFKA_HOME``, or in the cache."""
    configured = environ.get(HOME_VARIABLE)
    return Path(configured).expanduser() if configured else cache_folder(environ) / f"kafka-{KAFKA_VERSION}"


def pinned_jars(pins: Path = _HERE / "jars.sha256") -> dict[str, str]:
    """Return file name -> SHA-256 (hexadecimal) of every jar that a broker needs."""
    lines = pins.read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


# Invariant: Only jars with the pinned checksums are put on a class path.
# Test: tests/sandbox/test_fetch.py::test_fetch_refuses_a_wrong_checksum
def jar_problems(jars: Path, pins: Mapping[str, str]) -> list[str]:
    """Return a line for each file of the folder ``jars`` that is missing, unreadable or changed."""
    problems = []
    for name, digest in pins.items():
        try:
            with (jars / name).open("rb") as jar:
                actual = hashlib.file_digest(jar, "sha256").hexdigest()
        except (FileNotFoundError, NotADirectoryError):
            problems.append(f"{name} is missing")
        except OSError as error:
            problems.append(f"{name} cannot be read: {error.strerror}")
        else:
            if actual != digest:
                problems.append(f"{name} has the SHA-256 {actual} instead of {digest}")
    return problems


def fetch(
    home: Path | None = None,
    *,
    on_progress: Callable[[str], None] = lambda _: None,
    ivy: Path = _HERE / "ivy.xml",
    pinned: Mapping[str, str] | None = None,
    what: str = KAFKA,
) -> list[Path]:
    """Return the jars of a broker's class path. Downloads them into ``home`` (:func:`kafka_home`) if necessary.

    With another ``ivy`` file and its ``pinned`` SHA-256, return the jars that this file resolves to; ``what`` names
    them in messages.

    ``on_progress`` gets a line before the download. Several processes may call this at the same time. Raises
    SandboxError if there is no Java or no network, or if a file has a wrong checksum.
    """
    home = home or kafka_home()
    jars, pins = home / "jars", pinned_jars() if pinned is None else pinned
    if jar_problems(jars, pins):  # checked before locking, because a complete folder may be read-only
        java = find_java()
        with locked(home):
            if jar_problems(jars, pins):
                on_progress(f"fetching {what} into {home}")
                _fetch(java, jars, pins, ivy, what)
    return [jars / name for name in pins]


def _fetch(java: Java, jars: Path, pins: Mapping[str, str], ivy: Path, what: str) -> None:
    # Download into another folder and rename it, so that `jars` is always complete.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=jars.parent) as work:
        fresh = Path(work) / "jars"
        retrieve(fresh, ivy, java=java, work=Path(work), what=what)
        if problems := jar_problems(fresh, pins):
            raise SandboxError(f"the download is not {what} as pinned: {'; '.join(problems)}")
        if jars.exists():
            jars.rename(Path(work) / "broken")
        fresh.rename(jars)


def retrieve(destination: Path, ivy: Path, *, java: Java, work: Path, what: str) -> None:
    """Have Ivy put the jars that ``ivy`` resolves to into ``destination``; its cache is in ``work``.

    Nothing is compared with pinned checksums: a list of them is made from the result. Raises SandboxError if a jar
    could not be downloaded.
    """
    command: list[str | Path] = [
        java.path,
        f"-Duser.home={work}",  # otherwise Ivy also reads the user's own repositories
        "-jar",
        _ivy_jar(),
        "-warn",
        "-cache",
        work / "ivy",
        "-ivy",
        ivy,
        "-confs",
        "default",
        "-retrieve",
        f"{destination}/[artifact]-[revision].[ext]",
    ]
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_DOWNLOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SandboxError(f"{_not_fetched(what)}: not finished after {_DOWNLOAD_TIMEOUT_S} s") from error
    if result.returncode != 0:
        raise SandboxError(f"{_not_fetched(what)}: {_reason(result.stdout)}")


def _not_fetched(what: str) -> str:
    another_folder = f", or set {HOME_VARIABLE} to a folder with its jars in jars/" if what == KAFKA else ""
    return f"{what} could not be downloaded; check the network{another_folder}"


def _reason(output: str) -> str:
    """Return the first line of Ivy's output that contains an error, without its decoration."""
    lines = [line.strip(" \t:") for line in output.splitlines()]
    errors = [line for line in lines if any(word in line for word in ("Exception", "ERROR", "not found", "FAILED"))]
    return (errors or [line for line in lines if line] or ["Ivy printed nothing"])[0]


def _ivy_jar() -> Path:
    # PySpark is not imported: the import takes a second, and only mirror.spark may import it.
    spec = importlib.util.find_spec("pyspark")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for jar in sorted(Path(folder, "jars").glob("ivy-*.jar")):
            return jar
    raise SandboxError(f"a download of brokers needs PySpark, whose jars have Ivy: {install(SPARK)}")


def class_path(jars: list[Path]) -> str:
    """Return the value of Java's ``-cp``. It lists the files by name, so that no other jar in the folder is loaded."""
    return os.pathsep.join(str(jar) for jar in jars)
