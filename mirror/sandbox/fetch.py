"""Fetches Apache Kafka's jars, with the Ivy that is inside PySpark, and vouches for every one of them.

The jars and their SHA-256 are listed in ``jars.sha256`` (in the form of ``sha256sum``), made from a fetch whose files
Ivy had compared with the checksums beside them; only listed files are ever put on a class path. To move to another
release, change ``ivy.xml`` and :data:`KAFKA_VERSION`, have Ivy fetch into an empty folder, and list it anew with
``sha256sum *.jar``.
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
from mirror.sandbox.folders import cache_folder, locked
from mirror.sandbox.java import Java, find_java

KAFKA_VERSION: Final = "4.3.0"
HOME_VARIABLE: Final = "MIRROR_KAFKA_HOME"
_HERE: Final = Path(__file__).parent
_DOWNLOAD_WITHIN_S: Final = 1800


def kafka_home(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder that has, or will have, the jars in its ``jars`` folder: ``$MIRROR_KAFKA_HOME``, or in the cache."""
    configured = environ.get(HOME_VARIABLE)
    return Path(configured).expanduser() if configured else cache_folder(environ) / f"kafka-{KAFKA_VERSION}"


def pinned_jars(pins: Path = _HERE / "jars.sha256") -> dict[str, str]:
    """File name -> SHA-256 (hexadecimal) of every jar that a broker needs."""
    lines = pins.read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def faults(jars: Path, pins: Mapping[str, str]) -> list[str]:
    """What keeps the folder ``jars`` from being whole: a line for each missing or changed file, none if it is whole."""
    found = []
    for name, digest in pins.items():
        try:
            with (jars / name).open("rb") as jar:
                actual = hashlib.file_digest(jar, "sha256").hexdigest()
        except (FileNotFoundError, NotADirectoryError):
            found.append(f"{name} is missing")
        except OSError as error:
            found.append(f"{name} cannot be read: {error.strerror}")
        else:
            if actual != digest:
                found.append(f"{name} has the SHA-256 {actual} instead of {digest}")
    return found


def fetch(
    home: Path | None = None,
    *,
    say: Callable[[str], None] = lambda _: None,
    ivy: Path = _HERE / "ivy.xml",
    pinned: Mapping[str, str] | None = None,
) -> list[Path]:
    """The jars for a broker's class path, fetched into ``home`` (:func:`kafka_home`) unless they are there and whole.

    Or those that another ``ivy`` file resolves to, with their ``pinned`` SHA-256.

    ``say`` gets a line before the download. Any number of processes may call this at once. Raises SandboxError: no
    Java, no network, a file that is not what it should be.
    """
    home = home or kafka_home()
    jars, pins = home / "jars", pinned_jars() if pinned is None else pinned
    if faults(jars, pins):  # asked before locking: a whole folder may be read-only
        java = find_java()
        with locked(home):
            if faults(jars, pins):
                say(f"fetching Apache Kafka {KAFKA_VERSION} into {home}")
                _fetch(java, jars, pins, ivy)
    return [jars / name for name in pins]


def _fetch(java: Java, jars: Path, pins: Mapping[str, str], ivy: Path) -> None:
    # All into a folder beside, then one rename: whoever sees `jars` sees it whole.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=jars.parent) as work:
        fresh = Path(work) / "jars"
        _run_ivy(java, Path(work), fresh, ivy)
        if wrong := faults(fresh, pins):
            raise SandboxError(f"what was downloaded is not Apache Kafka {KAFKA_VERSION} as pinned: {'; '.join(wrong)}")
        if jars.exists():
            jars.rename(Path(work) / "broken")
        fresh.rename(jars)


def _run_ivy(java: Java, work: Path, destination: Path, ivy: Path) -> None:
    command: list[str | Path] = [
        java.path,
        f"-Duser.home={work}",  # else Ivy also looks into the user's own repositories
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
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_DOWNLOAD_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SandboxError(f"{_not_fetched()}: not done after {_DOWNLOAD_WITHIN_S} s") from error
    if done.returncode != 0:
        raise SandboxError(f"{_not_fetched()}: {_reason(done.stdout)}")


def _not_fetched() -> str:
    return (
        f"Apache Kafka {KAFKA_VERSION} could not be downloaded; check the network, or set {HOME_VARIABLE} to a folder "
        "with its jars in jars/"
    )


def _reason(output: str) -> str:
    """The first line of Ivy's output that tells what went wrong, without its decoration."""
    lines = [line.strip(" \t:") for line in output.splitlines()]
    telling = [line for line in lines if any(word in line for word in ("Exception", "ERROR", "not found", "FAILED"))]
    return (telling or [line for line in lines if line] or ["Ivy said nothing"])[0]


def _ivy_jar() -> Path:
    # Found without importing PySpark, which takes a second and may only be imported by mirror.spark.
    spec = importlib.util.find_spec("pyspark")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for jar in sorted(Path(place, "jars").glob("ivy-*.jar")):
            return jar
    raise SandboxError("there is no Ivy in PySpark's jars folder: install PySpark anew (make clean install)")


def class_path(jars: list[Path]) -> str:
    """The value of Java's ``-cp``. Files by name, no wildcard: a stray jar in the folder is not loaded."""
    return os.pathsep.join(str(jar) for jar in jars)
