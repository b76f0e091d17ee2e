"""How the tests' JVMs run: each lives for seconds, so that what counts is its start."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from mirror.sandbox.cluster import HEAP
from mirror.sandbox.java import find_java

_BUILD: Final = Path(__file__).parents[1] / "build"
_SPARK_ARCHIVE: Final = _BUILD / "spark.jsa"
"""``make test`` writes it (spark_archive.py)."""
_BROKER_ARCHIVE: Final = _BUILD / "broker.jsa"
"""``make test`` writes it (broker_archive.py)."""
_ONE_COMPILER: Final = "-XX:TieredStopAtLevel=1"
_NO_WORD_OF_ARCHIVES: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


def _archived(archive: Path) -> tuple[str, ...]:
    return (f"-XX:SharedArchiveFile={archive}", *_NO_WORD_OF_ARCHIVES) if archive.exists() else ()


def archiving(archive: Path) -> tuple[str, ...]:
    """The options of a JVM that writes an archive of the classes that it has loaded when it exits (JEP 350)."""
    return (f"-XX:ArchiveClassesAtExit={archive}", *_NO_WORD_OF_ARCHIVES)


PLAIN_BROKER: Final = (*HEAP, _ONE_COMPILER)
BROKER: Final = (*PLAIN_BROKER, *_archived(_BROKER_ARCHIVE))
"""``heap`` of a Cluster. A start takes 4.6 s of CPU without these options but ``HEAP``, 2.7 s with one compiler, and
1.6 s with an archive. Not for benchmarks and the long campaign."""
SANDBOX: Final = " ".join((_ONE_COMPILER, *_archived(_BROKER_ARCHIVE)))
"""``JDK_JAVA_OPTIONS`` of a process that starts clusters with the sandbox's own options."""
PLAIN: Final = (_ONE_COMPILER, "-XX:+UseSerialGC")
SPARK: Final = (*PLAIN, *_archived(_SPARK_ARCHIVE))
"""``SPARK_SUBMIT_OPTS``: a run takes 15 s of CPU without the first two, 7 with them, and 4 less with an archive."""


def compiled(source: Path, folder: Path, class_path: str) -> Path:
    """Compile a Java file into a subfolder of ``folder``, which is returned."""
    classes = folder / "classes"
    options = "-m", "jdk.compiler/com.sun.tools.javac.Main", "-proc:none", "-d", classes, "-cp", class_path
    subprocess.run([find_java().path, *PLAIN, *options, source], check=True, stderr=subprocess.DEVNULL)
    return classes
